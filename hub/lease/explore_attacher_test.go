package lease

// attacher are the steps of csi-attacher: what client-go's elector does (tools/leaderelection, LeaderElector) with a
// LeaseLock and the settings of csi-lib-utils: a leader that cannot renew ends its process.
func (a *steps) attacher(i int, p *process) {
	m, now := a.m, a.m.clock(&a.from, p)
	if p.op.job == idle && (!m.prompt || now.monotonic >= p.next) {
		a.add(true, p.id.String()+" tries to hold the Lease", func(s *leaseState) {
			p := &s.processes[i]
			if p.record == p.id && m.valid(p, now) { // tryAcquireOrRenew, the fast path
				p.op = operation{job: tries, request: request{update, stored{p.lock, p.id}}, sent: now}
			} else {
				p.op = operation{job: fetches, request: request{verb: get}, sent: now}
			}
		})
	}
	if !p.leads {
		return
	}
	if a.calls(i) {
		a.add(false, p.id.String()+" makes a call", func(s *leaseState) { s.calls[i] = m.callOf(p.id) })
	}
	// LeaderElector.renew: a round begins RetryPeriod after the last success, and fails after RenewDeadline.
	ends := m.time(now.monotonic).Sub(m.time(p.renewed.monotonic)) >= modelOptions.RetryPeriod+modelOptions.RenewDeadline
	if ends || !m.prompt {
		a.add(ends, p.id.String()+" has failed to renew the Lease, and exits", func(s *leaseState) {
			s.forget(m, i)
			s.processes[i].running, s.processes[i].leads, s.calls[i] = false, false, driverCall{}
		})
	}
}

// valid is isLeaseValid, by a clock that may go too fast.
func (m leaseModel) valid(p *process, now reading) bool {
	observed := m.time(p.since)
	return observed.Add(modelOptions.Duration).After(drifted(observed, m.time(now.monotonic), m.drift))
}

// attacherAnswered is the rest of tryAcquireOrRenew after a request.
func (m leaseModel) attacherAnswered(s *leaseState, i int) {
	p := &s.processes[i]
	op, now := p.op, m.clock(s, p)
	p.op, p.next = operation{}, now.monotonic+int16(modelOptions.RetryPeriod/m.tick)
	switch {
	case op.job == tries && !op.ok:
		p.op = operation{job: fetches, request: request{verb: get}, sent: op.sent}
	case op.job == fetches && op.answer.version == 0:
		p.op = operation{job: overwrites, request: request{create, stored{0, p.id}}, sent: op.sent}
	case op.job == fetches:
		if p.lock = op.answer.version; op.answer.version != p.sees.version { // another observedRawRecord
			p.sees, p.record, p.since = op.answer, op.answer.holder, now.monotonic
		}
		if op.answer.holder == noHolder || !m.valid(p, op.sent) || p.record == p.id {
			p.op = operation{job: overwrites, request: request{update, stored{p.lock, p.id}}, sent: op.sent}
		}
	case op.ok: // a write: setObservedRecord leaves observedRawRecord as it is
		p.record, p.since, p.lock = p.id, now.monotonic, op.answer.version
		p.leads, p.renewed = true, now
	}
}
