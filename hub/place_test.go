package hub

import (
	"testing"
	"time"
)

func TestPlaceOnANodeGoesToADetachFirst(t *testing.T) {
	q := newQueue(10)
	q.Open()
	start := func(name string, l lane) *item {
		q.Add(workKey{attachmentWork, name}, l)
		it, _ := q.take(time.Now())
		if it == nil || it.key.name != name {
			t.Fatalf("%v was started, want %s", it, name)
		}
		return it
	}
	first := start("first", attachLane)
	if !q.TakePlace(first, "node", 1) {
		t.Fatal("there is no place on an empty node")
	}
	second, third := start("second", attachLane), start("third", detachLane)
	if q.TakePlace(second, "node", 1) || q.TakePlace(third, "node", 1) {
		t.Fatal("there is a second place on the node")
	}
	q.Done(first)
	for _, want := range []*item{third, second} {
		got, _ := q.take(time.Now())
		if got != want {
			t.Fatalf("the place went to %v, want %s", got, want.key.name)
		}
		if !q.TakePlace(got, "node", 1) {
			t.Errorf("%s has lost its place", got.key.name)
		}
		q.Done(got)
	}
}
