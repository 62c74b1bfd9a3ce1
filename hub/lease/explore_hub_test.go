package lease

import (
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/explore"
)

// steps collects what may happen in a state of leaseModel.
type steps struct {
	m      leaseModel
	from   leaseState
	list   []explore.Step[leaseState]
	urgent bool // with prompt: time does not go on before
}

// add adds a step. do changes a copy of the state.
func (a *steps) add(urgent bool, name string, do func(s *leaseState)) {
	a.urgent = a.urgent || urgent && a.m.prompt
	a.list = append(a.list, explore.Step[leaseState]{Name: name, Do: func() (leaseState, error) {
		s := a.from
		do(&s)
		for p := &s.processes[1]; a.m.quick && p.op.job != idle && !s.away; {
			s.carryOut(1)
			a.m.answered(&s, 1)
		}
		return s, nil
	}})
}

func (a *steps) fault(name string, do func(s *leaseState)) {
	a.add(false, name, do)
	a.list[len(a.list)-1].Fault = true
}

func (m leaseModel) Steps(s leaseState) []explore.Step[leaseState] {
	a := &steps{m: m, from: s}
	for i := range s.processes {
		if p := &s.processes[i]; p.running {
			a.requests(i, p)
			if m.isAttacher(i) {
				a.attacher(i, p)
			} else {
				a.waiting(i, p)
				a.leading(i, p)
				a.machine(i, p)
			}
		}
		a.driver(i)
	}
	if s.away {
		a.add(false, "the API server is back", func(s *leaseState) { s.away = false })
	} else if m.outages && !s.wasAway {
		a.fault("the API server is away", func(s *leaseState) { s.away, s.wasAway = true, true })
	}
	if !a.urgent {
		a.ticks()
	}
	return a.list
}

// requests are the steps of the requests of a process.
func (a *steps) requests(i int, p *process) {
	name := p.id.String() + ": " + [...]string{"", "acquisition", "read after an acquisition", "renewal", "read after a renewal",
		"read before the release", "release", "optimistic renewal", "read", "write after the read"}[p.op.job]
	if p.op.job != idle && !p.op.done && !a.from.away {
		a.add(true, name+" reaches the API server", func(s *leaseState) { s.carryOut(i) })
	}
	if p.op.done {
		a.add(true, name+" is answered", func(s *leaseState) { a.m.answered(s, i) })
	}
	if timeout := modelOptions.requestTimeout(); p.op.job != idle {
		now := a.m.clock(&a.from, p)
		if late := a.m.instant(now).since(a.m.instant(p.op.sent)) >= timeout; late || !a.m.prompt {
			a.add(late && !p.op.done, name+" gets no answer", func(s *leaseState) {
				s.forget(a.m, i)
				s.processes[i].next = now.monotonic
			})
		}
	}
	if a.m.counts(a.from.late[i], a.from.lease) && !a.from.away {
		a.add(false, "a late request of "+"AB"[i:i+1]+" reaches the API server", func(s *leaseState) {
			s.lease, _ = s.late[i].carryOut(s.lease)
			s.late[i] = request{}
		})
	}
}

// carryOut is what the API server does with a request.
func (r request) carryOut(l stored) (after stored, ok bool) {
	switch {
	case r.verb == create && l.version > 0, r.verb == update && r.writes.version > 0 && r.writes.version != l.version:
		return l, false
	case r.verb == get:
		return l, true
	}
	return stored{version: l.version + 1, holder: r.writes.holder}, true
}

func (s *leaseState) carryOut(i int) {
	op := &s.processes[i].op
	s.lease, op.ok = op.request.carryOut(s.lease)
	if op.ok && op.request.verb != get {
		s.unled = 0
	}
	op.done, op.answer = true, s.lease
}

// forget has a process wait no more for a request, which may still arrive.
func (s *leaseState) forget(m leaseModel, i int) {
	op := &s.processes[i].op
	if !op.done && op.request.verb > get && !m.prompt {
		s.late[i] = op.request
	}
	*op = operation{}
}

// sends has a hub send the request for a job.
func (m leaseModel) sends(s *leaseState, i int, j job, base stored) {
	p := &s.processes[i]
	now := m.clock(s, p)
	p.op, p.next = operation{}, now.monotonic+int16(modelOptions.RetryPeriod/m.tick)
	if r, sent := m.send(s, p, j, base); sent {
		p.op = operation{job: j, request: r, sent: now, base: base}
	}
}

// answered has a process process the answer to its request.
func (m leaseModel) answered(s *leaseState, i int) {
	p := &s.processes[i]
	op := p.op
	if m.isAttacher(i) {
		m.attacherAnswered(s, i)
		return
	}
	p.op = operation{}
	if op.request.verb == get {
		m.observe(s, p, op.answer)
	}
	if op.job == renews && !op.ok { // a renewal that failed must not count
		p.op = op
		t, _ := m.receive(s, p)
		p.op, p.renewed = operation{}, m.reading(t.renewed)
	}
	switch {
	case op.job == acquires && op.ok, op.job == renews && op.ok:
		p.op = op
		t, err := m.receive(s, p)
		p.op = operation{}
		if err != nil {
			return
		}
		m.observe(s, p, op.answer)
		p.leads, p.over, p.renewed = true, t.over, m.reading(t.renewed)
	case op.job == releases && op.ok:
		m.observe(s, p, op.answer)
	case op.job == acquires:
		m.sends(s, i, looks, p.sees)
	case op.job == renews:
		m.sends(s, i, compares, p.sees)
	case op.job == compares && !p.over: // lock.withFresh; renew decides whether to write
		m.sends(s, i, renews, p.sees)
	case op.job == checks: // tryRelease decides whether to write
		m.sends(s, i, releases, op.answer)
	case op.job == releases: // lock.release tries again
		m.sends(s, i, checks, p.sees)
	}
}

// waiting are the steps of a hub that does not lead.
func (a *steps) waiting(i int, p *process) {
	if p.sees.version != a.from.lease.version && !a.from.away {
		a.add(true, p.id.String()+" sees that the Lease is held by '"+a.from.lease.holder.String()+"'", func(s *leaseState) {
			a.m.observe(s, &s.processes[i], s.lease)
		})
	}
	if p.leads || p.op.job != idle {
		return
	}
	start, now := a.m.time(p.since), a.m.time(a.m.clock(&a.from, p).monotonic)
	o := modelOptions
	d := decide(situation{now: drifted(start, now, a.m.drift), self: p.id.String(), alone: true, reach: Callable, duration: o.Duration,
		lease: a.m.observation(p.sees, p.since), settled: true})
	if d.take {
		a.add(true, p.id.String()+" sends the acquisition of the Lease", func(s *leaseState) { a.m.sends(s, i, acquires, p.sees) })
	}
}

// leading are the steps of a hub in a term.
func (a *steps) leading(i int, p *process) {
	if !p.leads {
		return
	}
	m, now := a.m, a.m.clock(&a.from, p)
	working := a.from.calls[i].by == p.id
	if !p.over && p.op.job == idle && (!m.prompt || now.monotonic >= p.next) {
		a.add(true, p.id.String()+" sends a renewal of the Lease", func(s *leaseState) { m.sends(s, i, renews, p.sees) })
	}
	if !p.over && m.loses(&a.from, p) {
		a.add(true, p.id.String()+" notices that the Lease is lost", func(s *leaseState) {
			s.processes[i].over = true
			s.forget(m, i)
		})
	}
	slow := m.since(a.from, p, p.renewed, -m.drift)
	if !p.begun && a.calls(i) && m.term(p).beginAt(slow, m.callTime()) == nil {
		a.add(false, p.id.String()+" begins a call", func(s *leaseState) { s.processes[i].begun = true })
	}
	if p.begun {
		if err := m.term(p).confirmAt(slow, m.callTime()); err != nil {
			a.add(true, p.id.String()+" drops the call that it has begun", func(s *leaseState) { s.processes[i].begun = false })
		} else {
			a.add(true, "the call of "+p.id.String()+" leaves", func(s *leaseState) {
				s.processes[i].begun = false
				s.calls[i] = m.callOf(p.id)
			})
		}
	}
	if p.over && working {
		a.add(true, p.id.String()+" cancels its call", func(s *leaseState) { s.calls[i] = driverCall{} })
	}
	if p.over && !working && !p.begun {
		a.add(true, "the work of "+p.id.String()+" ends", func(s *leaseState) { s.processes[i].leads = false })
	}
	// candidate.attempt: the lease is released when Serve has returned and the renewals have ended.
	if !p.over && !working && !p.begun {
		a.add(false, "the work of "+p.id.String()+" ends, and it is about to release the Lease", func(s *leaseState) {
			s.forget(m, i)
			s.processes[i].leads, s.processes[i].over = false, true
			m.sends(s, i, checks, p.sees)
		})
	}
}

// calls reports whether a process may make a call now.
func (a *steps) calls(i int) bool { return a.from.calls[i].by == noHolder && !(a.m.quick && i == 1) }

// loses reports whether a hub may find that it has lost the Lease, by a clock that drifts.
func (m leaseModel) loses(s *leaseState, p *process) bool {
	age := m.since(*s, p, p.renewed, m.drift).since(m.instant(p.renewed))
	o := m.options(p)
	return o.lossReason(o.remaining(age), m.observation(p.sees, p.since)) != ""
}
