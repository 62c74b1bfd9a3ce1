package lease

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhenALeaseIsTried(t *testing.T) {
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	held := sighting{known: true, present: true, since: start, record: record{holder: "x", duration: 10 * time.Second, acquired: time.Unix(0, 0)}}
	free := sighting{known: true, present: true, since: start}
	up := view{listed: true, up: true, since: start}
	mine, theirs := belonging{owner: "self"}, belonging{owner: "y"}
	forbidden := view{err: apierrors.NewForbidden(schema.GroupResource{}, "", nil), since: start}
	for name, c := range map[string]struct {
		s    situation
		want verdict
	}{
		"not seen yet":                       {situation{now: at(0)}, verdict{reason: "the leases of the namespace are not known yet"}},
		"held by another":                    {situation{now: at(9), lease: held, view: up, driver: mine, settled: true}, verdict{reason: "held by x since 1970-01-01T00:00:00Z", again: at(10)}},
		"held by another, expired":           {situation{now: at(10), lease: held, view: up, driver: mine, settled: true}, verdict{try: true}},
		"free and mine":                      {situation{now: at(0), lease: free, view: up, driver: mine, settled: true}, verdict{try: true}},
		"free and alone":                     {situation{now: at(0), lease: free, view: up, alone: true}, verdict{try: true}},
		"held and alone":                     {situation{now: at(0), lease: held, view: up, alone: true}, verdict{reason: "held by x since 1970-01-01T00:00:00Z", again: at(10)}},
		"in my name, whoever it belongs to":  {situation{now: at(0), lease: sighting{known: true, present: true, since: start, record: record{holder: "self", duration: time.Hour}}, view: up, driver: theirs, settled: true}, verdict{try: true}},
		"others not known":                   {situation{now: at(0), lease: free, view: up}, verdict{reason: "getting to know the other replicas"}},
		"others may still come":              {situation{now: at(0), lease: free, view: up, driver: mine, settled: true, from: at(1)}, verdict{reason: "getting to know the other replicas", again: at(1)}},
		"free and another's":                 {situation{now: at(1), lease: free, view: up, driver: theirs, settled: true}, verdict{reason: "belongs to replica y", again: at(20)}},
		"free for a duration":                {situation{now: at(20), lease: free, view: up, driver: theirs, settled: true}, verdict{try: true, past: "y"}},
		"expired, another's":                 {situation{now: at(29), lease: held, view: up, driver: theirs, settled: true}, verdict{reason: "belongs to replica y", again: at(30)}},
		"expired for a duration":             {situation{now: at(30), lease: held, view: up, driver: theirs, settled: true}, verdict{try: true, past: "y"}},
		"free while the API server was away": {situation{now: at(50), lease: free, view: view{listed: true, up: true, since: at(40)}, driver: theirs, settled: true}, verdict{reason: "belongs to replica y", again: at(60)}},
		"API server still away":              {situation{now: at(50), lease: free, view: view{listed: true, err: errors.New("away"), since: start}, driver: theirs, settled: true}, verdict{reason: "belongs to replica y", again: at(20)}},
		"in reserve, free":                   {situation{now: at(1), lease: free, view: up, reserve: true}, verdict{reason: "no replica can call the driver", again: at(20)}},
		"in reserve, free for a duration":    {situation{now: at(20), lease: free, view: up, reserve: true}, verdict{try: true}},
		"in reserve, another is able":        {situation{now: at(1), lease: free, view: up, reserve: true, driver: theirs, settled: true}, verdict{reason: "belongs to replica y", again: at(20)}},
		"in reserve, free, another first":    {situation{now: at(20), lease: free, view: up, reserve: true, later: true}, verdict{reason: "no replica can call the driver", again: at(40)}},
		"in reserve, the first did not":      {situation{now: at(40), lease: free, view: up, reserve: true, later: true}, verdict{try: true}},
		"in reserve and alone":               {situation{now: at(1), lease: free, view: up, reserve: true, alone: true}, verdict{reason: "no replica can call the driver", again: at(20)}},
		"watching is forbidden":              {situation{now: at(50), lease: free, view: forbidden, driver: theirs, settled: true}, verdict{try: true, past: "y"}},
	} {
		c.s.self, c.s.duration = "self", 20*time.Second
		if got := decide(c.s); got != c.want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, c.want)
		}
	}
}

func TestWhenADriverIsHandedOver(t *testing.T) {
	start := time.Now()
	for name, c := range map[string]struct {
		after time.Duration
		past  string
		owner string
		want  bool
	}{
		"mine":                             {time.Hour, "", "self", false},
		"nobody's":                         {time.Hour, "", "", false},
		"another's for a moment":           {999 * time.Millisecond, "", "y", false},
		"another's":                        {time.Second, "", "y", true},
		"another's, who did not take it":   {time.Hour, "y", "y", false},
		"somebody else's than who did not": {time.Hour, "x", "y", true},
	} {
		got, _ := givesAway(start.Add(c.after), "self", c.past, belonging{owner: c.owner, since: start}, time.Second)
		if got != c.want {
			t.Errorf("%s: handed over is %v", name, got)
		}
	}
}

func TestAClaimWaitsForReplicasThatMayComeToServeItToo(t *testing.T) {
	r := newRoster(Options{Identity: "a", RetryPeriod: time.Second}) // settles in 500ms
	start := time.Now()
	if _, _, ok := r.whose("d", start); ok {
		t.Error("members are known before they are")
	}
	r.set([]Member{{Identity: "a", Drivers: []string{"d"}}, {Identity: "b"}}, start)
	opened := start.Add(time.Minute)
	if _, from, ok := r.whose("d", opened); !ok || !from.Equal(opened.Add(500*time.Millisecond)) {
		t.Errorf("it counts from %v after the claim, %v", from.Sub(opened), ok)
	}
	r.set([]Member{{Identity: "a", Drivers: []string{"d"}}, {Identity: "b", Drivers: []string{"d"}}}, start.Add(time.Minute))
	if _, from, _ := r.whose("d", opened); !from.Equal(start.Add(500 * time.Millisecond)) {
		t.Errorf("it counts from %v after the start, though all are able", from.Sub(start))
	}
}

func TestBelongingLastsThroughOtherChanges(t *testing.T) {
	r := newRoster(Options{Identity: "a", RetryPeriod: time.Second})
	start := time.Now()
	a := Member{Identity: "a", Drivers: []string{"d"}}
	if !r.set([]Member{a}, start) {
		t.Error("the first members move nothing")
	}
	if r.set([]Member{a}, start.Add(time.Second)) {
		t.Error("the same members move something")
	}
	if b, _, _ := r.whose("d", start); !b.since.Equal(start) {
		t.Errorf("belongs since %v later", b.since.Sub(start))
	}
}

func TestHistoryKnowsWhetherAnotherHeldTheLease(t *testing.T) {
	h := history{last: map[Name]record{}}
	released := record{uid: "1", version: "10", transitions: 3}
	for name, c := range map[string]struct {
		last, prior record
		want        bool
	}{
		"as released":              {released, released, true},
		"deleted and made anew":    {released, record{}, false},
		"touched by somebody":      {released, record{uid: "1", version: "11", transitions: 3}, false},
		"held by another":          {released, record{uid: "1", version: "12", transitions: 4}, false},
		"lost, still in our name":  {record{uid: "1", version: "10", holder: "self", transitions: 3}, record{uid: "1", version: "11", holder: "self", transitions: 3}, true},
		"in our name, but in turn": {record{uid: "1", version: "10", holder: "self", transitions: 3}, record{uid: "1", version: "20", holder: "self", transitions: 5}, false},
	} {
		h.note(leaseD, c.last)
		if got := h.continues(leaseD, c.prior, "self"); got != c.want {
			t.Errorf("%s: continues is %v", name, got)
		}
	}
	if h.continues(Name{"ns", "e"}, record{}, "self") {
		t.Error("a lease never held continues")
	}
}
