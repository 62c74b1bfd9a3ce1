package lease

import (
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"
)

// observation is the last known state of a Lease.
type observation struct {
	known   bool                 // false: nobody has needed the Lease yet
	present bool                 // the Lease exists
	lease   coordinationv1.Lease // as last seen, also if it was deleted since; read-only
	// since is when this process first saw the Lease in this state, by its own monotonic
	// clock. Clocks of other machines may be wrong. The own clock stops at worst, which
	// makes a lease last longer here, never shorter.
	since time.Time
	// changed is set if this process has seen the Lease in another state before: somebody has written it since. A
	// Lease that was only listed may have been dead for long.
	changed bool
	// age is for an announcement: how long before since the replica probably renewed it, 0 if
	// that was seen. A replica that died before it could be seen counts as dead by its age.
	age time.Duration
}

// holder returns the identity of the holder, "" if there is none.
func (o observation) holder() string { return ptr.Deref(o.lease.Spec.HolderIdentity, "") }

// expires returns when the Lease may be taken if it does not change until then: at once if
// nobody holds it. defaultDuration is for a Lease without a duration. A Lease that was
// deleted while it was held expires as if it still existed: its holder may not know yet.
func (o observation) expires(defaultDuration time.Duration) time.Time {
	if o.holder() == "" {
		return o.since
	}
	duration := time.Duration(ptr.Deref(o.lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if duration <= 0 {
		duration = defaultDuration
	}
	return o.since.Add(duration)
}

// isDead reports whether the Lease was held and has expired while all changes of it were received.
func (o observation) isDead(watch watchState, defaultDuration time.Duration, now time.Time) bool {
	if watch.since.After(o.since) { // it may have changed unseen before
		o.since = watch.since
	}
	return watch.up && o.holder() != "" && !now.Before(o.expires(defaultDuration))
}

// contains reports whether a watch of n sees a Lease. A Name without a name is a scope too: all Leases of the namespace.
func (n Name) contains(lease Name) bool { return n == lease || n == Name{Namespace: lease.Namespace} }

// watchState says how well the Leases of a scope can be seen.
type watchState struct {
	listed bool      // all Leases have been listed once
	up     bool      // changes are received
	since  time.Time // when up became what it is
	err    error     // why it is not up, if that is known
}

// unreachable reports whether the API server seems to be unreachable. An API server that
// forbids the watch can be reached.
func (s watchState) unreachable() bool { return !s.up && !apierrors.IsForbidden(s.err) }

// observations holds the last observation of each Lease, from the watch and from this
// process's own requests. Its methods do not block and may be called from any goroutine.
type observations struct {
	self            string        // identity of this process
	defaultDuration time.Duration // of a Lease without a duration
	clock           func() instant

	mu             sync.Mutex
	byName         map[Name]observation
	watches        map[Name]watchState
	subscribers    map[Name][]chan<- struct{}
	membersChanged chan<- struct{} // signalled when the Lease of a replica or a watchState has changed
}

func newObservations(membersChanged chan<- struct{}) *observations {
	return &observations{
		clock:          now,
		byName:         map[Name]observation{},
		watches:        map[Name]watchState{},
		subscribers:    map[Name][]chan<- struct{}{},
		membersChanged: membersChanged,
	}
}

// notify sends to a channel with room for one, unless a signal is pending there.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// subscribe signals c at each change of the Lease, until unsubscribe.
func (o *observations) subscribe(n Name, c chan<- struct{}) (unsubscribe func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.subscribers[n] = append(o.subscribers[n], c)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.subscribers[n] = slices.DeleteFunc(o.subscribers[n], func(other chan<- struct{}) bool { return other == c })
	}
}

// get returns the last observation of the Lease.
func (o *observations) get(n Name) observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seen, ok := o.byName[n]; ok {
		return seen
	}
	state := o.stateOf(n)
	return observation{known: state.listed, since: state.since}
}

// watchOf says how well a Lease, or a scope, can be seen.
func (o *observations) watchOf(n Name) watchState {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stateOf(n)
}

// stateOf is watchOf. The caller has locked mu.
func (o *observations) stateOf(n Name) watchState {
	if state, ok := o.watches[Name{Namespace: n.Namespace}]; ok {
		return state
	}
	return o.watches[n]
}

// announcements returns the existing Leases by which replicas announce themselves.
func (o *observations) announcements(namespace string) map[Name]observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := map[Name]observation{}
	for n, seen := range o.byName {
		if n.Namespace == namespace && seen.present && isAnnouncement(&seen.lease) {
			found[n] = seen
		}
	}
	return found
}

// saw notes an object. An object older than the last observation is ignored: the watch may
// lag behind this process's own requests.
func (o *observations) saw(l *coordinationv1.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.set(l, o.clock().monotonic)
}

// set is saw. The caller has locked mu.
func (o *observations) set(l *coordinationv1.Lease, now time.Time) {
	n := Name{l.Namespace, l.Name}
	old, ok := o.byName[n]
	if ok && !newer(l.ResourceVersion, old.lease.ResourceVersion) {
		return
	}
	o.byName[n] = observation{known: true, present: true, lease: *l, since: now, changed: ok}
	o.changed(n, isAnnouncement(l))
}

// sawDeleted notes that the Lease does not exist, as of a resourceVersion, "" if that is not
// known.
func (o *observations) sawDeleted(n Name, version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setDeleted(n, version, o.clock().monotonic)
}

// setDeleted is sawDeleted. The caller has locked mu.
func (o *observations) setDeleted(n Name, version string, now time.Time) {
	seen, ok := o.byName[n]
	switch {
	case !ok:
		seen = observation{known: true, since: now}
	case !seen.present || version != "" && !newer(version, seen.lease.ResourceVersion):
		return
	case len(o.subscribers[n]) == 0: // nobody will ask: deleted Leases must not pile up
		delete(o.byName, n)
		o.changed(n, isAnnouncement(&seen.lease))
		return
	default:
		seen.present = false
		if version != "" {
			seen.lease.ResourceVersion = version
		}
	}
	o.byName[n] = seen
	o.changed(n, isAnnouncement(&seen.lease))
}

// list notes all Leases of a scope, as of a resourceVersion.
func (o *observations) list(s Name, leases []*coordinationv1.Lease, version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.clock().monotonic
	state := o.watches[s]
	state.listed = true
	if state.since.IsZero() {
		state.since = now
	}
	listed := map[Name]bool{}
	newest := newestRenewal(leases, o.self, now)
	for _, l := range leases {
		n := Name{l.Namespace, l.Name}
		listed[n] = true
		_, known := o.byName[n]
		o.set(l, now)
		if !known && isAnnouncement(l) {
			seen := o.byName[n]
			seen.age = ageWhenListed(l, newest)
			o.byName[n] = seen
		}
	}
	for n := range o.byName {
		if s.contains(n) && !listed[n] {
			o.setDeleted(n, version, now)
		}
	}
	o.setWatch(s, state)
}

// forget forgets a scope, and its Leases that nobody waits for, as if they had never been listed.
func (o *observations) forget(s Name) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.watches, s)
	for n := range o.byName {
		if s.contains(n) && len(o.subscribers[n]) == 0 {
			delete(o.byName, n)
		}
	}
}

// watchUp notes that changes in the scope are received from now on.
func (o *observations) watchUp(s Name) {
	o.mu.Lock()
	defer o.mu.Unlock()
	state := o.watches[s]
	if state.up {
		return
	}
	now := o.clock().monotonic
	// Replicas may have renewed their Leases unseen: each counts as live for a duration more,
	// unless it was dead before.
	for n, seen := range o.byName {
		if s.contains(n) && isAnnouncement(&seen.lease) {
			seen.since = now
			o.byName[n] = seen
		}
	}
	o.setWatch(s, watchState{listed: state.listed, up: true, since: now})
}

// watchDown notes that the scope cannot be listed or watched.
func (o *observations) watchDown(s Name, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	state := o.watches[s]
	if state.up || state.since.IsZero() {
		state.since = o.clock().monotonic
	}
	if state.up {
		o.keepDead(s)
	}
	state.up, state.err = false, err
	o.setWatch(s, state)
}

// setWatch signals all subscribers of the scope. The caller has locked mu.
func (o *observations) setWatch(s Name, state watchState) {
	o.watches[s] = state
	for n := range o.subscribers {
		if s.contains(n) {
			o.changed(n, false)
		}
	}
	notify(o.membersChanged)
}

// changed signals the subscribers of a Lease. The caller has locked mu.
func (o *observations) changed(n Name, isAnnouncement bool) {
	for _, c := range o.subscribers[n] {
		notify(c)
	}
	if isAnnouncement {
		notify(o.membersChanged)
	}
}

// newer reports whether resourceVersion a came after b. Versions that cannot be compared
// count as newer: that makes a lease last longer, never shorter.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}
