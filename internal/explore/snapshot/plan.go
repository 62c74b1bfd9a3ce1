package snapshot

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"unsafe"
)

// Plan copies values of a type, and makes keys of them. It is safe for concurrent use, also on the same value.
type Plan[T any] struct {
	copies, keys *layout
	copiers      sync.Pool
	shared       *sharedKeys
}

// Of makes a plan for a type. An error names all fields that need a rule, and all rules that apply to nothing.
func Of[T any](list ...Rule) (*Plan[T], error) {
	t := reflect.TypeFor[T]()
	r := &rules{list: list, used: map[string]bool{}}
	copying := &compiler{rules: r, layouts: map[reflect.Type]*layout{}, pointed: map[reflect.Type]bool{}}
	keying := &compiler{rules: r, keys: true, layouts: map[reflect.Type]*layout{}, pointed: map[reflect.Type]bool{}}
	p := &Plan[T]{copies: copying.layout(t, t.String()), keys: keying.layout(t, t.String()), shared: &sharedKeys{}}
	copying.finish()
	keying.finish()
	errs := slices.Concat(copying.errs, keying.errs)
	for _, rule := range list {
		for _, name := range rule.names {
			if !r.used[name] {
				errs = append(errs, fmt.Sprintf("the rule for %s applies to nothing: no such type or field is reached", name))
			}
		}
	}
	if err := joined(t, errs); err != nil {
		return nil, err
	}
	p.copiers.New = func() any { return &copier{} }
	p.shared.keyers.New = func() any { return &keyer{shared: p.shared} }
	return p, nil
}

// Must is Of for rules that are known to fit. It panics if they do not.
func Must[T any](list ...Rule) *Plan[T] {
	p, err := Of[T](list...)
	if err != nil {
		panic(err)
	}
	return p
}

// Copy returns a deep copy of a value.
func (p *Plan[T]) Copy(from *T) *T {
	c := p.copiers.Get().(*copier)
	to := c.copy(p.copies, unsafe.Pointer(from))
	p.copiers.Put(c)
	return (*T)(to)
}

// Append appends the key of a value to a slice. Two values have the same key if they differ only in what the rules leave
// out.
func (p *Plan[T]) Append(key []byte, from *T) []byte {
	k := p.shared.keyers.Get().(*keyer)
	key = k.append(key, p.keys, unsafe.Pointer(from))
	k.fillRanks(key)
	p.shared.keyers.Put(k)
	return key
}
