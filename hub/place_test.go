package hub

import (
	"testing"
	"time"
)

func TestPlaceOnANodeGoesToADetachFirst(t *testing.T) {
	q := newQueue(10)
	q.Open()
	q.SetLimits(10, 1)
	start := func(name string, l lane) *item {
		q.Add(workKey{attachmentWork, name}, l)
		it, _ := q.take(time.Now())
		if it == nil || it.key.name != name {
			t.Fatalf("%v was started, want %s", it, name)
		}
		return it
	}
	first := start("first", attachLane)
	if !q.TakePlace(first, "node") {
		t.Fatal("there is no place on an empty node")
	}
	second, third := start("second", attachLane), start("third", detachLane)
	if q.TakePlace(second, "node") || q.TakePlace(third, "node") {
		t.Fatal("there is a second place on the node")
	}
	q.Done(first)
	for _, want := range []*item{third, second} {
		got, _ := q.take(time.Now())
		if got != want {
			t.Fatalf("the place went to %v, want %s", got, want.key.name)
		}
		if !q.TakePlace(got, "node") {
			t.Errorf("%s has lost its place", got.key.name)
		}
		q.Done(got)
	}
}

func TestItemThatWaitsForADetachKeepsNoPlace(t *testing.T) {
	q := newQueue(10)
	q.Open()
	q.SetLimits(10, 1)
	take := func(name string, l lane) *item {
		q.Add(workKey{attachmentWork, name}, l)
		it, _ := q.take(time.Now())
		return it
	}
	attach, detach := take("attach", attachLane), take("detach", detachLane)
	if !q.TakePlace(attach, "node") {
		t.Fatal("there is no place on an empty node")
	}
	if !q.WaitFor(attach, detach.key) {
		t.Fatal("the attach does not wait for the detach that runs")
	}
	if !q.TakePlace(detach, "node") {
		t.Error("the detach finds the place taken by the attach that waits for it")
	}
	q.Done(detach)
	if got, _ := q.take(time.Now()); got != attach {
		t.Errorf("%v runs when the detach has ended, want the attach", got)
	}
}

func TestRaisedLimitLetsThoseThatWaitBegin(t *testing.T) {
	q := newQueue(10)
	q.Open()
	q.SetLimits(10, 1)
	var items []*item
	for _, name := range []string{"a", "b", "c"} {
		q.Add(workKey{attachmentWork, name}, attachLane)
		it, _ := q.take(time.Now())
		q.TakePlace(it, "node")
		items = append(items, it)
	}
	q.SetLimits(10, 2)
	if got, _ := q.take(time.Now()); got != items[1] {
		t.Errorf("%v runs after the limit was raised to 2, want b", got)
	}
	if got, _ := q.take(time.Now()); got != nil {
		t.Errorf("%s runs too", got.key.name)
	}
}

func TestItemThatIsAskedForAgainWaitsNowhereAnyMore(t *testing.T) {
	q := newQueue(10)
	q.Open()
	q.SetLimits(10, 1)
	take := func(name string) *item {
		q.Add(workKey{attachmentWork, name}, attachLane)
		it, _ := q.take(time.Now())
		return it
	}
	first, second, third := take("first"), take("second"), take("third")
	if !q.TakeTurn(first, "volume") || !q.TakePlace(first, "node") {
		t.Fatal("the first has to wait")
	}
	if q.TakeTurn(second, "volume") || !q.TakeTurn(third, "other") || q.TakePlace(third, "node") {
		t.Fatal("the others do not wait as they should")
	}
	q.Add(second.key, attachLane)
	q.Add(third.key, attachLane)
	if n, m := len(q.turns["volume"].waiters), len(q.nodes["node"].waiters); n != 0 || m != 0 {
		t.Errorf("%d wait for the volume still, and %d for the node", n, m)
	}
	for range 2 {
		it, _ := q.take(time.Now())
		q.Done(it)
	}
	q.Done(first)
	if it, _ := q.take(time.Now()); it != nil {
		t.Errorf("%s runs once more", it.key.name)
	}
}
