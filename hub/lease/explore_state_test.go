package lease

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
)

// leaseModel is the world of one Lease and the processes that compete for it, as states that can be enumerated. Processes
// 0 and 1 are replicas of the hub, or one of the hub and a csi-attacher. What a hub decides and writes is decided by the
// code of this package: lock, observations, decide, Term and lossReason.
//
// Time goes on in ticks. Between two ticks anything may happen in any order, and no step has to be taken: so each
// process may be stopped before each of its steps, for any time, and each request and each event of a watch may take any
// time. With prompt, a process does what it can do before the next tick.
//
// A clock that drifts is a wrong reading: each time that a process measures is wrong by the drift, in the direction that
// is dangerous. A holder measures too little and who waits measures too much. What is true for these is true for all
// clocks between them, because each decision depends on the time that it measures in one direction only.
type leaseModel struct {
	tick    time.Duration
	drift   float64 // each clock goes between 1-drift and 1+drift times as fast as time
	wire    int     // ticks that a call is on the way to the driver, at most
	timeout int     // of a call, in ticks
	crashes int     // of hubs
	attacher,
	stops, // machines freeze, and their monotonic clocks with them
	jumps, // wall clocks are set; with prompt: one of them, once
	noClock, // both at once: outside of what is assumed
	quick, // process 1 makes no calls, and its requests take no time: the most dangerous successor of process 0
	prompt, // no process is stopped, and answers come at once
	outages bool // with prompt: the API server is away once, for any time
}

var modelOptions = Options{Duration: time.Second, RenewDeadline: 700 * time.Millisecond, RetryPeriod: 200 * time.Millisecond}

const (
	far      = 50 // ticks by which a wall clock is set
	noHolder = id(0)
	dead     = id(100) // a process that held the Lease before the world began
)

// id is the identity of one run of a process: a process that is started again has another.
type id int8

func (i id) String() string {
	if i == dead {
		return "dead"
	}
	return [...]string{"", "A1", "A2", "A3", "A4", "B1", "B2", "B3", "B4"}[i]
}

func identityOf(text string) id {
	for _, i := range []id{noHolder, 1, 2, 3, 4, 5, 6, 7, 8, dead} {
		if i.String() == text {
			return i
		}
	}
	panic("unknown holder " + text)
}

// stored is a Lease. Its version is 0 if it does not exist.
type stored struct {
	version int16
	holder  id
}

// reading is what the two clocks of a process show, in ticks.
type reading struct{ monotonic, wall int16 }

type verb int8

const (
	none verb = iota
	get
	create
	update
)

// request is a request to the API server. An update carries the version that it replaces.
type request struct {
	verb   verb
	writes stored // version: what an update expects
}

// job is what the sender of a request wants.
type job int8

const (
	idle       job = iota
	acquires       // a write
	looks          // a read after a failed acquisition
	renews         // a write
	compares       // a read after a renewal that was out of date
	checks         // the read of a release
	releases       // the write of a release
	tries          // csi-attacher's optimistic renewal
	fetches        // csi-attacher's read
	overwrites     // csi-attacher's write after the read
)

// operation is a request that its sender waits for.
type operation struct {
	job     job
	request request
	sent    reading
	base    stored // hub: the observation that a write is based on
	done    bool   // the API server has carried the request out
	ok      bool   // and without a conflict
	answer  stored // the Lease after that
}

type process struct {
	id      id
	running bool
	stopped int16 // ticks that its monotonic clock stood still
	offset  int16 // of its wall clock
	sees    stored
	since   int16 // by its monotonic clock; csi-attacher: observedTime
	op      operation
	next    int16 // prompt: when to renew, or to try, by its monotonic clock

	leads   bool // hub: Serve runs; csi-attacher: OnStartedLeading has been called
	over    bool // hub: Term.over
	renewed reading
	begun   bool // Begin has allowed a call that has not left the process

	// csi-attacher
	record id    // observedRecord.HolderIdentity
	lock   int16 // the version in LeaseLock.lease
}

// driverCall is a call that has left its process.
type driverCall struct {
	by   id
	age  int8          // ticks since it left
	left time.Duration // until the driver ends it; the time on the wire comes on top of it
}

type leaseState struct {
	now       int16
	lease     stored
	processes [2]process
	calls     [2]driverCall // by process
	late      [2]request    // by process: sent, and nobody waits for the answer
	crashes   int8          // left
	away      bool          // the API server
	wasAway   bool
	wasSet    bool  // prompt: a wall clock
	unled     int16 // prompt: ticks in which no hub led and the API server was there
	free      int16 // prompt: and in which nobody held the Lease
}

func (m leaseModel) clock(s *leaseState, p *process) reading {
	return reading{monotonic: s.now - p.stopped, wall: s.now + p.offset}
}

// duration is how long a lease lasts, in ticks.
func (m leaseModel) duration() int16 { return int16(modelOptions.Duration / m.tick) }

// oldest is the age in ticks from which on an age makes no difference.
func (m leaseModel) oldest() int16 { return int16(float64(m.duration())/(1-m.drift)) + 2 }

func (m leaseModel) Start() []leaseState {
	var starts []leaseState
	for _, lease := range []stored{{}, {version: 1, holder: dead}} {
		s := leaseState{lease: lease, crashes: int8(m.crashes)}
		for i := range s.processes {
			s.processes[i] = process{id: id(1 + 4*i), running: true, sees: lease}
		}
		if m.attacher { // it has seen nothing yet
			s.processes[1].sees = stored{}
		}
		starts = append(starts, s)
	}
	return starts
}

// Key leaves out absolute times and versions, and what a process will not look at again. Of a version that is not that
// of the Lease any more, it says only which of two is newer where a process compares them.
func (m leaseModel) Key(s leaseState, to []byte) []byte {
	flags := func(flags ...bool) {
		var b byte
		for i, f := range flags {
			if f {
				b |= 1 << i
			}
		}
		to = append(to, b)
	}
	age := func(relevant bool, now, then int16) {
		if !relevant {
			now = then
		}
		to = append(to, byte(max(-1, min(now-then, m.oldest()))+1))
	}
	ages := func(relevant bool, now, then reading) {
		age(relevant, now.monotonic, then.monotonic)
		if relevant && (m.jumps || m.stops || m.noClock) {
			wall, monotonic := now.wall-then.wall, now.monotonic-then.monotonic
			to = append(to, byte(min((wall-monotonic+2*far)/far, 5)), byte(min((wall-monotonic+2*far)%far, m.oldest())))
		}
	}
	to = append(to, byte(s.lease.holder), byte(s.crashes), byte(s.unled), byte(s.free))
	flags(s.away, s.wasAway, s.wasSet, s.lease.version == 0)
	for i, p := range s.processes {
		now, attacher, op := m.clock(&s, &p), m.isAttacher(i), p.op
		waits, mine := op.job != idle, p.sees.holder == p.id
		flags(p.running, p.leads, p.over, p.begun, mine, p.sees.holder == noHolder, p.sees.version == s.lease.version)
		flags(op.done, op.ok, waits && op.request.writes.version == s.lease.version, waits && op.request.writes.version == 0,
			op.done && op.answer.version == s.lease.version, op.done && op.answer.version > p.sees.version,
			op.done && op.answer.holder == p.id, op.done && op.answer.holder == noHolder)
		to = append(to, byte(p.id), byte(p.offset/far), byte(op.job))
		age(p.sees.holder != noHolder && !mine || attacher, now.monotonic, p.since)
		age(m.prompt, now.monotonic, p.next)
		ages(p.leads && (!p.over || attacher), now, p.renewed)
		ages(op.job == acquires || op.job == renews || op.job == fetches || m.prompt && waits, now, op.sent)
		if attacher {
			flags(p.record == p.id, p.record == noHolder, p.lock == s.lease.version)
		}
		if late := s.late[i]; m.counts(late, s.lease) {
			to = append(to, byte(late.writes.holder)+1)
		} else {
			to = append(to, 0)
		}
		to = append(to, byte(s.calls[i].by), byte(s.calls[i].age))
		to = binary.AppendVarint(to, int64(s.calls[i].left))
	}
	return to
}

// counts reports whether a late request can still change the Lease.
func (leaseModel) counts(late request, l stored) bool {
	_, ok := late.carryOut(l)
	return late.verb != none && ok
}

// Check: while the driver works on a call of a hub, the API server knows this hub as the holder of the Lease. So no
// other process has begun to act, since each takes the Lease before.
func (m leaseModel) Check(s leaseState) error {
	for i, c := range s.calls {
		if c.by == noHolder || c.age < 0 || m.isAttacher(i) && !m.prompt { // csi-attacher has no fence, see package doc
			continue
		}
		if err := safety.Holds(c.by.String(), s.lease.holder.String(), "the driver works on its call"); err != nil {
			return err
		}
	}
	if s.free > 0 {
		return fmt.Errorf("nobody holds the Lease, and nobody has taken it at once")
	}
	if limit := m.duration() + 1; s.unled > limit {
		return fmt.Errorf("nobody has led for more than %d ticks", limit)
	}
	return nil
}

// Reached: a process leads, and may begin a call.
func (m leaseModel) Reached(s leaseState) bool {
	for i := range s.processes {
		p := &s.processes[i]
		if p.leads && (m.isAttacher(i) || m.term(p).beginAt(m.since(s, p, p.renewed, -m.drift), m.callTime()) == nil) {
			return true
		}
	}
	return false
}

func (m leaseModel) callTime() time.Duration { return time.Duration(m.timeout) * m.tick }

func (m leaseModel) isAttacher(i int) bool { return m.attacher && i == 1 }

// Describe is printed at the end of a trace.
func (m leaseModel) Describe(s leaseState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "tick %d, Lease version %d, held by %q\n", s.now, s.lease.version, s.lease.holder)
	for i, p := range s.processes {
		fmt.Fprintf(&b, "%v: clocks %+v, sees %+v since %d, leads %v, over %v, renewed %+v, call %+v\n",
			p.id, m.clock(&s, &p), p.sees, p.since, p.leads, p.over, p.renewed, s.calls[i])
	}
	return b.String()
}
