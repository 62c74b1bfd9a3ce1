package main

import (
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
)

// counters counts the VolumeAttachments of each driver by state, as a watcher sees
// them. Its methods may be called from any goroutine.
type counters struct {
	mu      sync.Mutex
	drivers []string // in the order of the rows; never changed
	want    map[string]int
	calls   map[string]int // publishes in flight
	living  map[types.UID]*observation
	failed  map[string]int             // VolumeAttachments that ever had an error
	took    map[string][]time.Duration // from created to attached, sorted
}

// observation is one VolumeAttachment that exists.
type observation struct {
	driver   string
	first    time.Time // when it was seen first
	attached bool
	deleting bool
	failing  bool // has an error now
	failed   bool // had one
	timed    bool // was attached once
}

// row has the counts of one driver at one moment. Rows are comparable.
type row struct {
	Driver    string
	Waiting   int // to be attached, without a call in flight
	Attaching int // publishes in flight
	Attached  int
	Detaching int // being deleted
	Failing   int // with an attachError or detachError now
	Failed    int // that ever had one
	Took      took
}

// took summarizes the times from the creation of a VolumeAttachment until it was
// attached, both as the watcher sees them.
type took struct {
	N        int // how many were attached; with 0 the times mean nothing
	P50, P99 time.Duration
}

func newCounters(drivers []string) *counters {
	return &counters{
		drivers: drivers,
		want:    map[string]int{},
		calls:   map[string]int{},
		living:  map[types.UID]*observation{},
		failed:  map[string]int{},
		took:    map[string][]time.Duration{},
	}
}

// expect sets how many volumes of each driver the Pods want attached.
func (t *counters) expect(want map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.want = want
}

// inFlight sets how many publishes of a driver are in flight.
func (t *counters) inFlight(driver string, publishes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls[driver] = publishes
}

// observe handles a change that a watcher has seen at that time.
func (t *counters) observe(at time.Time, was, now *storagev1.VolumeAttachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if was != nil && (now == nil || now.UID != was.UID) {
		delete(t.living, was.UID)
	}
	if now == nil {
		return
	}
	s := t.living[now.UID]
	if s == nil {
		// It is not timed if it is attached when it is seen first.
		s = &observation{driver: now.Spec.Attacher, first: at, timed: now.Status.Attached}
		t.living[now.UID] = s
	}
	s.attached = now.Status.Attached
	s.deleting = now.DeletionTimestamp != nil
	s.failing = now.Status.AttachError != nil || now.Status.DetachError != nil
	if s.failing && !s.failed {
		s.failed = true
		t.failed[s.driver]++
	}
	if s.attached && !s.timed {
		s.timed = true
		d := at.Sub(s.first)
		i, _ := slices.BinarySearch(t.took[s.driver], d)
		t.took[s.driver] = slices.Insert(t.took[s.driver], i, d)
	}
}

// rows returns a row for each driver, in the given order.
func (t *counters) rows() []row {
	t.mu.Lock()
	defer t.mu.Unlock()
	rows := make([]row, len(t.drivers))
	index := map[string]*row{}
	for i, d := range t.drivers {
		rows[i] = row{Driver: d, Failed: t.failed[d], Took: timesOf(t.took[d])}
		index[d] = &rows[i]
	}
	for _, s := range t.living {
		if r := index[s.driver]; r != nil {
			r.add(*s)
		}
	}
	for i := range rows {
		r := &rows[i]
		left := max(0, t.want[r.Driver]-r.Attached-r.Detaching)
		// The count of calls comes from the drivers, and may be a moment ahead.
		r.Attaching = min(left, t.calls[r.Driver])
		r.Waiting = left - r.Attaching
	}
	return rows
}

func (r *row) add(s observation) {
	switch {
	case s.deleting:
		r.Detaching++
	case s.attached:
		r.Attached++
	}
	if s.failing {
		r.Failing++
	}
}

// times summarizes the times of all matching drivers together.
func (t *counters) times(of func(driver string) bool) took {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []time.Duration
	for d, times := range t.took {
		if of(d) {
			all = append(all, times...)
		}
	}
	slices.Sort(all)
	return timesOf(all)
}

func timesOf(sorted []time.Duration) took {
	return took{N: len(sorted), P50: statistics.Percentile(sorted, 50), P99: statistics.Percentile(sorted, 99)}
}
