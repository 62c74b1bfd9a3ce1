package snapshot

import (
	"reflect"
	"slices"
	"strings"
)

// Rule says how a Plan treats some types or fields. A field is named by its type and itself ("volume.Table.mu", and
// "volume.queue.wake" for a field of an embedded struct), a type as %T prints it ("sync.Mutex", "*v1.Node"). A rule for a field
// goes before one for its type, and a later rule before an earlier one. A rule that applies to nothing is an error of the plan.
type Rule struct {
	names []string
	apply func(t *treatment, number int)
}

// treatment is how a plan treats a value.
type treatment struct {
	mode  mode
	limit uint64 // of saturated
	group int    // of ranked
}

type mode int8

const (
	deep mode = iota
	skip
	share
	zero
	rank
	saturate
)

// Share has a pointer count by what it points to, whoever else points there, and a func, channel or interface by whether it is
// nil.
func Share(names ...string) Rule {
	return Rule{names, func(t *treatment, _ int) { t.mode = share }}
}

// Skip leaves the value out.
func Skip(names ...string) Rule {
	return Rule{names, func(t *treatment, _ int) { t.mode = skip }}
}

// Zero has only whether the value is zero count.
func Zero(names ...string) Rule {
	return Rule{names, func(t *treatment, _ int) { t.mode = zero }}
}

// Rank has only the order of the values count, and whether each is zero. All that one Rank names are ordered together. It takes
// integers and strings, of which the longer ones are greater, as in decimal numbers.
func Rank(names ...string) Rule {
	return Rule{names, func(t *treatment, number int) { t.mode, t.group = rank, number }}
}

// Saturate has integers above a limit count as the limit.
func Saturate(limit uint64, names ...string) Rule {
	return Rule{names, func(t *treatment, _ int) { t.mode, t.limit = saturate, limit }}
}

// rules finds the rules for a type or field.
type rules struct {
	list    []Rule
	reached map[string]bool // names of types and fields, also of what is left out
}

// reach notes the names of a type and of all that it leads to.
func (r *rules) reach(t reflect.Type) {
	if r.reached[t.String()] {
		return
	}
	r.reached[t.String()] = true
	switch t.Kind() {
	case reflect.Map:
		r.reach(t.Key())
		r.reach(t.Elem())
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
		r.reach(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			r.reached[t.String()+"."+t.Field(i).Name] = true
			r.reach(t.Field(i).Type)
		}
	}
}

// treatment returns how a value is treated: by rules for its type, and for the field of a struct type if owner is not nil. own
// says whether a rule names the field.
func (r *rules) treatment(t, owner reflect.Type, field string) (tr treatment, own bool) {
	names := []string{t.String()}
	if owner != nil {
		names = append(names, owner.String()+"."+field)
	}
	for at, name := range names {
		for i, rule := range r.list {
			if slices.Contains(rule.names, name) {
				rule.apply(&tr, i)
				own = own || at > 0
			}
		}
	}
	return tr, own
}

// unused returns the names that nothing has.
func (r *rules) unused() (names []string) {
	for _, rule := range r.list {
		for _, name := range rule.names {
			if !r.reached[name] {
				names = append(names, "the rule for "+name+" applies to nothing: no such type or field is reached")
			}
		}
	}
	return names
}

func joined(errs []string) string {
	slices.Sort(errs)
	return strings.Join(slices.Compact(errs), "\n\t")
}
