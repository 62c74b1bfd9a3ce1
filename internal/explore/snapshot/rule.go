package snapshot

import (
	"reflect"
	"slices"
	"strings"
)

// Rule says how a Plan treats some types or fields. A field is named by its type and itself ("volume.Table.mu", and
// "volume.queue.wake" for a field of an embedded struct), a type as %T prints it ("sync.Mutex", "*v1.Node"); in place
// of the package's name its path may be given. A rule for a field goes before one for its type, and a later rule
// before an earlier one. A rule that applies to nothing is an error of the plan.
type Rule struct {
	names []string
	apply func(t *treatment, number int)
}

// treatment is how a plan treats a value.
type treatment struct {
	copy   copyMode
	key    keyMode
	limit  uint64         // of saturated
	group  int            // of ranked
	holds  []reflect.Type // dynamic types of an interface
	custom *custom
	empty  bool // see NilIsEmpty
}

type copyMode int8

const (
	deepCopy copyMode = iota
	shareCopy
	freshCopy
	customCopy
)

type keyMode int8

const (
	deepKey keyMode = iota
	skipKey
	zeroKey
	rankKey
	saturateKey
	customKey
)

// Share has copies share the value with the original, which must never change: API objects in caches, loggers, funcs. A
// func must not refer to what is copied. In keys a shared pointer counts by what it points to, and a shared func, channel
// or interface by whether it is nil.
func Share(names ...string) Rule {
	return Rule{names, func(t *treatment, _ int) { t.copy = shareCopy }}
}

// Skip leaves the value out of keys.
func Skip(names ...string) Rule {
	return Rule{names, func(t *treatment, _ int) { t.key = skipKey }}
}

// Fresh has copies begin anew, and leaves the value out of keys: a lock is free, a channel is a new one of the same
// capacity, all else is zero. A channel of struct{} has as many elements as the original, other channels have none.
func Fresh(names ...string) Rule {
	return Rule{names, func(t *treatment, _ int) { t.copy, t.key = freshCopy, skipKey }}
}

// Zero has only whether the value is zero count in keys. It takes integers, strings and time.Time.
func Zero(names ...string) Rule {
	return Rule{names, func(t *treatment, _ int) { t.key = zeroKey }}
}

// Rank has only the order of the values count in keys, and whether each is zero. All that one Rank names are ordered
// together. It takes integers, time.Time, and strings, of which the longer ones are greater, as in decimal numbers.
func Rank(names ...string) Rule {
	return Rule{names, func(t *treatment, number int) { t.key, t.group = rankKey, number }}
}

// Saturate has integers above a limit count as the limit in keys.
func Saturate(limit uint64, names ...string) Rule {
	return Rule{names, func(t *treatment, _ int) { t.key, t.limit = saturateKey, limit }}
}

// NilIsEmpty has maps without elements count as nil in keys.
func NilIsEmpty(names ...string) Rule {
	return Rule{names, func(t *treatment, _ int) { t.empty = true }}
}

// Holds says what an interface may hold besides nil: values of the types of the examples. Copy and Append panic if they
// find another type.
func Holds(name string, examples ...any) Rule {
	return Rule{[]string{name}, func(t *treatment, _ int) {
		t.holds = nil
		for _, x := range examples {
			t.holds = append(t.holds, reflect.TypeOf(x))
		}
	}}
}

type custom struct {
	typ  reflect.Type
	copy func(to, from reflect.Value)
	key  func(from reflect.Value, to []byte) []byte
}

// Custom has functions copy values of a type and append them to keys. What the functions share or lead to, a plan does
// not see.
func Custom[T any](copy func(T) T, key func(T, []byte) []byte) Rule {
	typ := reflect.TypeFor[T]()
	c := &custom{typ: typ,
		copy: func(to, from reflect.Value) { *to.Addr().Interface().(*T) = copy(*from.Addr().Interface().(*T)) },
		key:  func(from reflect.Value, b []byte) []byte { return key(*from.Addr().Interface().(*T), b) },
	}
	return Rule{[]string{typ.String()}, func(t *treatment, _ int) { t.copy, t.key, t.custom = customCopy, customKey, c }}
}

// rules finds the rules for a type or field.
type rules struct {
	list []Rule
	used map[string]bool
}

func (r *rules) treat(t *treatment, names ...string) {
	for i, rule := range r.list {
		for _, name := range rule.names {
			if slices.Contains(names, name) {
				r.used[name] = true
				rule.apply(t, i)
			}
		}
	}
}

// typeNames returns the names of a type in rules.
func typeNames(t reflect.Type) []string {
	names := []string{t.String()}
	stars := ""
	for t.Name() == "" && t.Kind() == reflect.Pointer {
		t, stars = t.Elem(), stars+"*"
	}
	if t.Name() != "" && strings.Contains(t.PkgPath(), "/") {
		names = append(names, stars+t.PkgPath()+"."+t.Name())
	}
	return names
}

// treatment returns how a value is treated: by rules for its type, and for the field of a struct type if owner is not nil.
func (r *rules) treatment(t reflect.Type, owner reflect.Type, field string) treatment {
	var tr treatment
	r.treat(&tr, typeNames(t)...)
	if owner != nil {
		names := typeNames(owner)
		for i := range names {
			names[i] += "." + field
		}
		r.treat(&tr, names...)
	}
	return tr
}
