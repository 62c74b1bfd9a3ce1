package lease

import (
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhenALeaseIsTried(t *testing.T) {
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	held := observation{known: true, present: true, since: start, lease: *object(leaseD, 1, "x", 10)}
	held.lease.Spec.AcquireTime = &metav1.MicroTime{Time: time.Unix(0, 0)}
	own := observation{known: true, present: true, since: start, lease: *object(leaseD, 1, "self", 3600)}
	free := observation{known: true, present: true, since: start}
	up := watchState{listed: true, up: true, since: start}
	mine, theirs := assignment{owner: "self"}, assignment{owner: "y"}
	forbidden := watchState{err: apierrors.NewForbidden(schema.GroupResource{}, "", nil), since: start}
	for name, c := range map[string]struct {
		s    situation
		want decision
	}{
		"not seen yet":                       {situation{reach: Callable, now: at(0)}, decision{reason: "the leases of the namespace are not known yet"}},
		"held by another":                    {situation{reach: Callable, now: at(9), lease: held, watch: up, assigned: mine, settled: true}, decision{reason: "held by x", again: at(10)}},
		"held by another, expired":           {situation{reach: Callable, now: at(10), lease: held, watch: up, assigned: mine, settled: true}, decision{take: true}},
		"free and mine":                      {situation{reach: Callable, now: at(0), lease: free, watch: up, assigned: mine, settled: true}, decision{take: true}},
		"free and alone":                     {situation{reach: Callable, now: at(0), lease: free, watch: up, alone: true}, decision{take: true}},
		"held and alone":                     {situation{reach: Callable, now: at(0), lease: held, watch: up, alone: true}, decision{reason: "held by x", again: at(10)}},
		"in my name, whoever it belongs to":  {situation{reach: Callable, now: at(0), lease: own, watch: up, assigned: theirs, settled: true}, decision{take: true}},
		"others not known":                   {situation{reach: Callable, now: at(0), lease: free, watch: up}, decision{reason: "waiting for the other replicas to announce themselves"}},
		"others may still come":              {situation{reach: Callable, now: at(0), lease: free, watch: up, assigned: mine, settled: true, assignedFrom: at(1)}, decision{reason: "waiting for the other replicas to announce themselves", again: at(1)}},
		"free and another's":                 {situation{reach: Callable, now: at(1), lease: free, watch: up, assigned: theirs, settled: true}, decision{reason: "replica y should take the lease, or another one after 20s", again: at(20)}},
		"free for a duration":                {situation{reach: Callable, now: at(20), lease: free, watch: up, assigned: theirs, settled: true}, decision{take: true, passedOver: "y"}},
		"expired, another's":                 {situation{reach: Callable, now: at(29), lease: held, watch: up, assigned: theirs, settled: true}, decision{reason: "replica y should take the lease, or another one after 20s", again: at(30)}},
		"expired for a duration":             {situation{reach: Callable, now: at(30), lease: held, watch: up, assigned: theirs, settled: true}, decision{take: true, passedOver: "y"}},
		"free while the API server was away": {situation{reach: Callable, now: at(50), lease: free, watch: watchState{listed: true, up: true, since: at(40)}, assigned: theirs, settled: true}, decision{reason: "replica y should take the lease, or another one after 20s", again: at(60)}},
		"API server still away":              {situation{reach: Callable, now: at(50), lease: free, watch: watchState{listed: true, err: errors.New("away"), since: start}, assigned: theirs, settled: true}, decision{reason: "replica y should take the lease, or another one after 20s", again: at(20)}},
		"away, mine before":                  {situation{reach: Away, now: at(1), lease: free, watch: up, continues: true}, decision{reason: "no replica can call the driver", again: at(20)}},
		"away, mine and free for a duration": {situation{reach: Away, now: at(20), lease: free, watch: up, continues: true}, decision{take: true}},
		"away, another is able":              {situation{reach: Away, now: at(1), lease: free, watch: up, continues: true, assigned: theirs, settled: true}, decision{reason: "replica y should take the lease, or another one after 20s", again: at(20)}},
		"away and alone":                     {situation{reach: Away, now: at(1), lease: free, watch: up, continues: true, alone: true}, decision{reason: "no replica can call the driver", again: at(20)}},
		"away, another held it since":        {situation{reach: Away, now: at(50), lease: free, watch: up}, decision{reason: "no replica can call the driver"}},
		"away, another held it, it expired":  {situation{reach: Away, now: at(50), lease: held, watch: up, assigned: theirs, settled: true}, decision{reason: "replica y should take the lease, or another one after 20s"}},
		"away, still in my name":             {situation{reach: Away, now: at(0), lease: own, watch: up}, decision{take: true}},
		"just away, mine before":             {situation{reach: JustAway, now: at(0), lease: free, watch: up, continues: true, assigned: mine, settled: true}, decision{take: true}},
		"just away, another held it since":   {situation{reach: JustAway, now: at(50), lease: held, watch: up, assigned: mine, settled: true}, decision{reason: "the driver cannot be called"}},
		"just away, alone":                   {situation{reach: JustAway, now: at(0), lease: free, watch: up, continues: true, alone: true}, decision{take: true}},
		"just away, alone, another held it":  {situation{reach: JustAway, now: at(50), lease: held, watch: up, alone: true}, decision{reason: "no replica can call the driver"}},
		"never reached":                      {situation{now: at(50), lease: free, watch: up}, decision{reason: "no replica can call the driver"}},
		"given up":                           {situation{now: at(50), lease: free, watch: up, continues: true, alone: true}, decision{reason: "no replica can call the driver"}},
		"given up, still in my name":         {situation{now: at(50), lease: own, watch: up}, decision{reason: "held by self", again: at(3600)}},
		"given up, it expired in my name":    {situation{now: at(3600), lease: own, watch: up}, decision{reason: "no replica can call the driver"}},
		"watching is forbidden":              {situation{reach: Callable, now: at(50), lease: free, watch: forbidden, assigned: theirs, settled: true}, decision{take: true, passedOver: "y"}},
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
		after      time.Duration
		passedOver string
		owner      string
		want       bool
	}{
		"mine":                             {time.Hour, "", "self", false},
		"nobody's":                         {time.Hour, "", "", false},
		"another's for a moment":           {999 * time.Millisecond, "", "y", false},
		"another's":                        {time.Second, "", "y", true},
		"another's, who did not take it":   {time.Hour, "y", "y", false},
		"somebody else's than who did not": {time.Hour, "x", "y", true},
	} {
		got, _ := handsOver(start.Add(c.after), "self", c.passedOver, assignment{owner: c.owner, since: start}, time.Second)
		if got != c.want {
			t.Errorf("%s: handed over is %v", name, got)
		}
	}
}

func TestACandidacyWaitsForReplicasThatMayComeToServeItToo(t *testing.T) {
	r := newMembers(Options{Identity: "a", RetryPeriod: time.Second}) // debounces for 500ms
	start := time.Now()
	if _, _, ok := r.assignment("d", start); ok {
		t.Error("members are known before they are")
	}
	r.set([]Member{{Identity: "a", Drivers: []string{"d"}}, {Identity: "b"}}, start)
	opened := start.Add(time.Minute)
	if _, from, ok := r.assignment("d", opened); !ok || !from.Equal(opened.Add(500*time.Millisecond)) {
		t.Errorf("it counts from %v after the candidacy, %v", from.Sub(opened), ok)
	}
	r.set([]Member{{Identity: "a", Drivers: []string{"d"}}, {Identity: "b", Drivers: []string{"d"}}}, start.Add(time.Minute))
	if _, from, _ := r.assignment("d", opened); !from.Equal(start.Add(500 * time.Millisecond)) {
		t.Errorf("it counts from %v after the start, though all are able", from.Sub(start))
	}
}

func TestAssignmentLastsThroughOtherChanges(t *testing.T) {
	r := newMembers(Options{Identity: "a", RetryPeriod: time.Second})
	start := time.Now()
	a := Member{Identity: "a", Drivers: []string{"d"}}
	if !r.set([]Member{a}, start) {
		t.Error("the first members move nothing")
	}
	if r.set([]Member{a}, start.Add(time.Second)) {
		t.Error("the same members move something")
	}
	if b, _, _ := r.assignment("d", start); !b.since.Equal(start) {
		t.Errorf("assigned %v later", b.since.Sub(start))
	}
}

func TestALockKnowsWhetherAnotherHeldTheLease(t *testing.T) {
	lease := func(version int, holder string, transitions int32) *coordinationv1.Lease {
		l := object(leaseD, version, holder, 0)
		l.UID, l.Spec.LeaseTransitions = "1", &transitions
		return l
	}
	released := lease(10, "", 3)
	for name, c := range map[string]struct {
		last  *coordinationv1.Lease
		prior observation
		want  bool
	}{
		"as released":              {released, observation{present: true, lease: *released}, true},
		"deleted and made anew":    {released, observation{lease: *released}, false},
		"touched by somebody":      {released, observation{present: true, lease: *lease(11, "", 3)}, false},
		"held by another":          {released, observation{present: true, lease: *lease(12, "", 4)}, false},
		"lost, still in our name":  {lease(10, "self", 3), observation{present: true, lease: *lease(11, "self", 3)}, true},
		"in our name, but in turn": {lease(10, "self", 3), observation{present: true, lease: *lease(20, "self", 5)}, false},
		"never held":               {nil, observation{present: true, lease: *released}, false},
	} {
		l := lock{options: Options{Identity: "self"}, last: c.last}
		if got := l.continues(c.prior); got != c.want {
			t.Errorf("%s: continues is %v", name, got)
		}
	}
}
