package lease

import (
	"fmt"
	"time"
)

func (m leaseModel) callOf(by id) driverCall {
	return driverCall{by: by, age: int8(-m.wire), left: time.Duration(float64(m.callTime()) / (1 - m.drift))}
}

// driver are the steps of a call at the driver.
func (a *steps) driver(i int) {
	c := a.from.calls[i]
	if c.by == noHolder {
		return
	}
	if c.age < 0 {
		a.add(false, "the call of "+c.by.String()+" reaches the driver", func(s *leaseState) { s.calls[i].age = 0 })
		return
	}
	a.add(false, "the driver ends the call of "+c.by.String(), func(s *leaseState) { s.calls[i] = driverCall{} })
}

// machine are the faults of a machine.
func (a *steps) machine(i int, p *process) {
	if a.from.crashes > 0 && !a.from.away {
		a.fault(p.id.String()+" crashes and is started again", func(s *leaseState) {
			s.forget(a.m, i)
			s.crashes, s.unled = s.crashes-1, 0
			if !fits(a.m.callTime(), modelOptions.Duration, modelOptions.RetryPeriod) {
				s.calls[i] = driverCall{} // its connection ends; if the whole machine is lost, nothing ends such a call
			}
			old := s.processes[i]
			fresh := process{id: old.id + 1, running: true, stopped: old.stopped, offset: old.offset, sees: s.lease}
			fresh.since = a.m.clock(s, &fresh).monotonic
			s.processes[i] = fresh
		})
	}
	if a.from.wasSet {
		return
	}
	back, ahead := a.m.jumps || a.m.noClock, a.m.jumps
	if a.m.quick && !a.m.prompt { // the direction that is dangerous: for who holds the Lease, or for who waits
		back, ahead = back && i == 0, ahead && i == 1
	}
	for _, by := range []int16{-far, 0, far} {
		if by != p.offset && (by == 0 || by < 0 && back || by > 0 && ahead) {
			a.fault(fmt.Sprintf("the wall clock of %v is set to %+d ticks", p.id, by), func(s *leaseState) {
				s.processes[i].offset, s.wasSet = by, a.m.prompt
			})
		}
	}
}

// ticks are the steps in which time goes on.
func (a *steps) ticks() {
	a.add(false, "a tick", a.m.goOn)
	if !a.m.stops && !a.m.noClock {
		return
	}
	for i := range a.from.processes {
		p := &a.from.processes[i]
		if !a.m.isAttacher(i) && p.running && !(a.m.quick && i == 1) {
			a.fault("a tick in which the machine of "+p.id.String()+" is frozen, and its monotonic clock stands still", func(s *leaseState) {
				s.processes[i].stopped++
				a.m.goOn(s)
			})
		}
	}
}

func (m leaseModel) goOn(s *leaseState) {
	s.now++
	for i := range s.calls {
		c := &s.calls[i]
		if c.by == noHolder {
			continue
		}
		if c.age < 0 {
			c.age++
		} else if c.left -= m.tick; c.left <= 0 {
			*c = driverCall{}
		}
	}
	if !m.prompt {
		return
	}
	s.unled++
	for _, p := range s.processes {
		if s.away || p.running && p.leads && !p.over {
			s.unled = 0
		}
	}
	s.free = 0
	if s.lease.holder == noHolder && !s.away {
		s.free = 1
	}
}
