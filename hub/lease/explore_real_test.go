package lease

import (
	"context"
	"errors"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
)

// Between the states of leaseModel and the code of this package.

var (
	modelName  = Name{"ns", "d"}
	modelEpoch = time.Unix(1_000_000, 0)
	errSent    = errors.New("the request has been sent, and its answer comes later")
	resource   = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
)

func (m leaseModel) time(ticks int16) time.Time {
	return modelEpoch.Add(time.Duration(ticks) * m.tick)
}

func (m leaseModel) ticks(t time.Time) int16 { return int16(t.Sub(modelEpoch) / m.tick) }

func (m leaseModel) instant(r reading) instant {
	return instant{monotonic: m.time(r.monotonic), wall: m.time(r.wall)}
}

func (m leaseModel) reading(i instant) reading {
	return reading{monotonic: m.ticks(i.monotonic), wall: m.ticks(i.wall)}
}

// drifted returns the end of a time as a clock shows it that is wrong by a share of it.
func drifted(from, to time.Time, share float64) time.Time {
	return to.Add(time.Duration(share * float64(to.Sub(from))))
}

// since is the present instant as a process sees it that measures the time since another one.
func (m leaseModel) since(s leaseState, p *process, from reading, drift float64) instant {
	start, now := m.instant(from), m.instant(m.clock(&s, p))
	return instant{monotonic: drifted(start.monotonic, now.monotonic, drift), wall: drifted(start.wall, now.wall, drift)}
}

func (m leaseModel) options(p *process) Options {
	o := modelOptions
	o.Identity = p.id.String()
	return o
}

func (m leaseModel) term(p *process) *Term {
	return &Term{duration: modelOptions.Duration, retry: modelOptions.RetryPeriod, over: p.over, renewed: m.instant(p.renewed)}
}

func leaseObject(l stored) *coordinationv1.Lease {
	version := ""
	if l.version > 0 {
		version = strconv.Itoa(int(l.version))
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: modelName.Namespace, Name: modelName.Name, ResourceVersion: version},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(l.holder.String()), LeaseDurationSeconds: ptr.To(int32(modelOptions.Duration / time.Second))},
	}
}

func content(l *coordinationv1.Lease) stored {
	version, _ := strconv.Atoi(l.ResourceVersion) // "" without a version
	return stored{version: int16(version), holder: identityOf(ptr.Deref(l.Spec.HolderIdentity, ""))}
}

// observation is what a hub knows of the Lease.
func (m leaseModel) observation(l stored, since int16) observation {
	o := observation{known: true, since: m.time(since)}
	if l.version > 0 {
		o.present, o.lease = true, *leaseObject(l)
	}
	return o
}

// observe has a hub see the Lease.
func (m leaseModel) observe(s *leaseState, p *process, l stored) {
	if l.version == 0 {
		return // a Lease that exists is never deleted here
	}
	o := m.observations(p.sees, p.since, func() instant { return m.instant(m.clock(s, p)) })
	o.saw(leaseObject(l))
	seen := o.get(modelName)
	p.sees, p.since = content(&seen.lease), m.ticks(seen.since)
}

func (m leaseModel) observations(l stored, since int16, clock func() instant) *observations {
	o := newObservations(nil)
	o.clock = clock
	o.byName[modelName] = m.observation(l, since)
	return o
}

// fakeLeases carries out the requests of a lock.
type fakeLeases struct {
	coordinationclient.LeaseInterface
	answer func(v verb, l *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

func (f fakeLeases) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	return f.answer(get, nil)
}

func (f fakeLeases) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return f.answer(create, l)
}

func (f fakeLeases) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return f.answer(update, l)
}

// lock returns the lock of a hub that sends a request, at an instant, and gets its answer later.
func (m leaseModel) lock(p *process, base stored, sent reading, now func() instant, answer func(verb, *coordinationv1.Lease) (*coordinationv1.Lease, error)) *lock {
	clock := func() instant { return m.instant(sent) }
	o := m.observations(base, p.since, func() instant { return clock() })
	return &lock{name: modelName, options: m.options(p), observations: o, client: fakeLeases{answer: func(v verb, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
		if v != get {
			clock = now
		}
		return answer(v, l)
	}}}
}

// send returns the request that a hub sends for a job. base is the observation that it is based on, for a release the
// answer of the read.
func (m leaseModel) send(s *leaseState, p *process, j job, base stored) (r request, sent bool) {
	now := m.clock(s, p)
	l := m.lock(p, base, now, nil, func(v verb, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
		if v == get && j == releases {
			return found(base)
		}
		r, sent = request{verb: v}, true
		if l != nil {
			r.writes = content(l)
		}
		return nil, errSent
	})
	_, _ = m.run(l, p, j, base) // fails with errSent
	return r, sent
}

func found(l stored) (*coordinationv1.Lease, error) {
	if l.version == 0 {
		return nil, apierrors.NewNotFound(resource, modelName.Name)
	}
	return leaseObject(l), nil
}

// receive has a hub process the answer to a write, and returns the term.
func (m leaseModel) receive(s *leaseState, p *process) (*Term, error) {
	op := p.op
	l := m.lock(p, op.base, op.sent, func() instant { return m.instant(m.clock(s, p)) }, func(v verb, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
		switch {
		case v == get && op.job == releases:
			return found(op.base)
		case v == get: // the next request: see leaseModel.answered
			return nil, errSent
		case op.ok:
			return leaseObject(op.answer), nil
		case v == create:
			return nil, apierrors.NewAlreadyExists(resource, modelName.Name)
		default:
			return nil, apierrors.NewConflict(resource, modelName.Name, nil)
		}
	})
	return m.run(l, p, op.job, op.base)
}

func (m leaseModel) run(l *lock, p *process, j job, base stored) (*Term, error) {
	ctx := context.Background()
	switch j {
	case acquires:
		return l.acquire(ctx, m.observation(base, p.since))
	case renews:
		t := m.term(p)
		return t, l.renew(ctx, t)
	case releases:
		var sent metav1.MicroTime
		_, err := l.tryRelease(ctx, &sent)
		return nil, err
	default:
		_, err := l.read(ctx)
		return nil, err
	}
}
