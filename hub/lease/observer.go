package lease

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// observer keeps what was last seen of each lease, whoever saw it: the watch, or a
// request that read or wrote it. Its methods do not block and may be called from any
// goroutine.
type observer struct {
	mu         sync.Mutex
	seen       map[Name]sighting
	namespaces map[string]view
	wakers     map[Name]map[chan<- struct{}]bool
	replicas   chan<- struct{} // woken when a lease of a replica has changed, or a view
}

// view is how well a namespace can be seen.
type view struct {
	listed bool      // all that is there has been seen once
	up     bool      // changes are seen
	since  time.Time // since when it is up, or not
	err    error     // why it is not, if that is known
}

// away reports whether the API server seems to be away. When it only forbids to watch,
// it is there.
func (v view) away() bool { return !v.up && !apierrors.IsForbidden(v.err) }

func newObserver(replicas chan<- struct{}) *observer {
	return &observer{
		seen:       map[Name]sighting{},
		namespaces: map[string]view{},
		wakers:     map[Name]map[chan<- struct{}]bool{},
		replicas:   replicas,
	}
}

// wake makes a pending signal of a channel with room for one.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// subscribe has c woken at each change of the lease, until unsubscribe.
func (o *observer) subscribe(n Name, c chan<- struct{}) (unsubscribe func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wakers[n] == nil {
		o.wakers[n] = map[chan<- struct{}]bool{}
	}
	o.wakers[n][c] = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.wakers[n], c)
		if len(o.wakers[n]) == 0 {
			delete(o.wakers, n)
		}
	}
}

// look returns what is known of the lease.
func (o *observer) look(n Name) sighting {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s, ok := o.seen[n]; ok {
		return s
	}
	v := o.namespaces[n.Namespace]
	return sighting{known: v.listed, since: v.since}
}

func (o *observer) view(namespace string) view {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.namespaces[namespace]
}

// announced returns the leases of replicas in the namespace that exist.
func (o *observer) announced(namespace string) map[Name]sighting {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := map[Name]sighting{}
	for n, s := range o.seen {
		if n.Namespace == namespace && s.present && s.record.replica {
			found[n] = s
		}
	}
	return found
}

// saw takes in an object. What is older than what was seen already is ignored:
// the watch may lag behind this process's own requests.
func (o *observer) saw(l *coordinationv1.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.take(Name{l.Namespace, l.Name}, recordOf(l), time.Now())
}

func (o *observer) take(n Name, r record, now time.Time) {
	old, ok := o.seen[n]
	if ok && !newer(r.version, old.record.version) {
		return
	}
	o.seen[n] = sighting{known: true, present: true, record: r, since: now}
	o.changed(n, r.replica)
}

// gone takes in that the lease does not exist. version is the resourceVersion of that
// news, "" if it has none.
func (o *observer) gone(n Name, version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lose(n, version, time.Now())
}

func (o *observer) lose(n Name, version string, now time.Time) {
	s, ok := o.seen[n]
	switch {
	case !ok:
		s = sighting{known: true, since: now}
	case !s.present || version != "" && !newer(version, s.record.version):
		return
	case len(o.wakers[n]) == 0: // nobody will ask: do not keep what is gone for ever
		delete(o.seen, n)
		o.changed(n, s.record.replica)
		return
	default:
		s.present = false
		if version != "" {
			s.record.version = version
		}
	}
	o.seen[n] = s
	o.changed(n, s.record.replica)
}

// list takes in all leases of a namespace, as of the resourceVersion.
func (o *observer) list(namespace string, leases []*coordinationv1.Lease, version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	v := o.namespaces[namespace]
	v.listed = true
	if v.since.IsZero() {
		v.since = now
	}
	o.namespaces[namespace] = v
	there := map[Name]bool{}
	for _, l := range leases {
		n := Name{l.Namespace, l.Name}
		there[n] = true
		o.take(n, recordOf(l), now)
	}
	for n := range o.seen {
		if n.Namespace == namespace && !there[n] {
			o.lose(n, version, now)
		}
	}
	o.viewed(namespace)
}

// up takes in that changes of the namespace are seen from now on.
func (o *observer) up(namespace string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := o.namespaces[namespace]
	if v.up {
		return
	}
	now := time.Now()
	if v.listed {
		// While nobody looked, replicas may have renewed: they count as alive anew.
		for n, s := range o.seen {
			if n.Namespace == namespace && s.record.replica {
				s.since = now
				o.seen[n] = s
			}
		}
	}
	o.namespaces[namespace] = view{listed: v.listed, up: true, since: now}
	o.viewed(namespace)
}

// down takes in that the namespace cannot be listed or watched.
func (o *observer) down(namespace string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := o.namespaces[namespace]
	if v.up || v.since.IsZero() {
		v.since = time.Now()
	}
	v.up, v.err = false, err
	o.namespaces[namespace] = v
	o.viewed(namespace)
}

// changed wakes who waits for the lease. The caller has locked mu.
func (o *observer) changed(n Name, replica bool) {
	for c := range o.wakers[n] {
		wake(c)
	}
	if replica {
		wake(o.replicas)
	}
}

// viewed wakes all who wait for a lease of the namespace. The caller has locked mu.
func (o *observer) viewed(namespace string) {
	for n := range o.wakers {
		if n.Namespace == namespace {
			o.changed(n, false)
		}
	}
	wake(o.replicas)
}

// newer reports whether resourceVersion a came after b. What cannot be compared counts as newer:
// that makes a lease last longer, never shorter.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}
