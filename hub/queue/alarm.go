package queue

import (
	"container/heap"
	"time"
)

// alarm is when an item runs that is Delayed, or when a full node is tried.
type alarm struct {
	at    time.Time
	index int   // in alarms, from 1; 0: it is not set
	item  *Item // or node
	node  *node
}

// alarms is a heap: the first alarm is the next one.
type alarms []*alarm

func (as alarms) Len() int           { return len(as) }
func (as alarms) Less(i, j int) bool { return as[i].at.Before(as[j].at) }
func (as alarms) Swap(i, j int) {
	as[i], as[j] = as[j], as[i]
	as[i].index, as[j].index = i+1, j+1
}

func (as *alarms) Push(x any) {
	a := x.(*alarm)
	*as = append(*as, a)
	a.index = len(*as)
}

func (as *alarms) Pop() any {
	last := len(*as) - 1
	a := (*as)[last]
	(*as)[last] = nil
	*as = (*as)[:last]
	a.index = 0
	return a
}

func (as *alarms) set(a *alarm, at time.Time) {
	as.unset(a)
	a.at = at
	heap.Push(as, a)
}

func (as *alarms) unset(a *alarm) {
	if a.index > 0 {
		heap.Remove(as, a.index-1)
	}
}

// next takes an alarm that is due, nil if there is none.
func (as *alarms) next(now time.Time) *alarm {
	if len(*as) == 0 || (*as)[0].at.After(now) {
		return nil
	}
	return heap.Pop(as).(*alarm)
}
