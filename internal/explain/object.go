package explain

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Object is the result of reading one object or a list. It is in one of four states: not read (the
// zero value), Present, Absent or Unreadable. Only Absent means that the object is missing.
type Object[T any] struct {
	value *T
	err   error
	read  bool
}

// Present is an object that was read.
func Present[T any](value *T) Object[T] { return Object[T]{value: value, read: true} }

// Absent is an object that was looked for and does not exist.
func Absent[T any]() Object[T] { return Object[T]{read: true} }

// Unreadable is an object that could not be read.
func Unreadable[T any](err error) Object[T] { return Object[T]{err: err, read: true} }

// Value returns the object if it is present, else nil.
func (o Object[T]) Value() *T { return o.value }

// Err returns why the object could not be read, nil in the other three states.
func (o Object[T]) Err() error { return o.err }

// Missing reports whether the object was looked for and does not exist.
func (o Object[T]) Missing() bool { return o.read && o.value == nil && o.err == nil }

// items returns the objects of a list, none if it was not read.
func items[T any](list Object[[]T]) []T {
	if list.value == nil {
		return nil
	}
	return *list.value
}

// answered returns the Object for the results of a client.
func answered[T any](value *T, err error) Object[T] {
	switch {
	case apierrors.IsNotFound(err):
		return Absent[T]()
	case err != nil:
		return Unreadable[T](err)
	}
	return Present(value)
}
