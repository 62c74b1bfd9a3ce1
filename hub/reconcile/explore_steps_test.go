package reconcile

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/explore"
)

type worldStep = explore.Step[*exploredWorld]

// The errors that workers get.
var (
	errNoAnswer  = &url.Error{Op: "Patch", URL: "https://api", Err: context.DeadlineExceeded}
	errDeadline  = status.Error(codes.DeadlineExceeded, "no answer in time")
	errDriver    = status.Error(codes.Internal, "the storage system has failed")
	errPending   = status.Error(codes.Aborted, "an operation for the volume is pending")
	errElsewhere = status.Error(codes.FailedPrecondition, "the volume is published at another node")
)

// steps returns what may happen in a state of the world.
func (m *volumeModel) steps(w *exploredWorld) []worldStep {
	var all []worldStep
	add := func(name string, fault bool, do func() (*exploredWorld, error)) {
		all = append(all, worldStep{Name: name, Fault: fault, Do: do})
	}
	for i := range w.replicas {
		m.stepsOfReplica(w, i, add)
	}
	for i, c := range w.driver.late {
		end := func(effect bool) func() (*exploredWorld, error) {
			return func() (*exploredWorld, error) {
				next := w.clone()
				next.driver.late = slices.Delete(slices.Clone(w.driver.late), i, i+1)
				if effect {
					next.driver = next.driver.after(c)
				}
				return next, nil
			}
		}
		add(fmt.Sprintf("driver: the late %s %v takes effect", c.verb, c.target), false, end(true))
		add(fmt.Sprintf("driver: the late %s %v has failed", c.verb, c.target), false, end(false))
	}
	m.userSteps(w, add)
	return all
}

type addStep func(name string, fault bool, do func() (*exploredWorld, error))

func (m *volumeModel) stepsOfReplica(w *exploredWorld, i int, add addStep) {
	p, me := w.replicas[i], nameOfReplica(i)
	may := w.users.faults > 0
	if p.replica == nil {
		add(me+" starts", false, func() (*exploredWorld, error) {
			next := w.clone()
			next.replicas[i] = place{}
			return next.settle(i, m.replicas.first(w.api))
		})
		return
	}
	m.leaseSteps(w, i, add)
	for r := range resources {
		switch {
		case p.lists[r]:
			add(fmt.Sprintf("%s lists %v", me, r), false, func() (*exploredWorld, error) {
				next := w.clone()
				next.replicas[i].lists[r] = false
				return next.settle(i, m.replicas.next(p.replica, input{kind: inputRelist, resource: r, objects: w.api.objects[r], version: w.api.version[r]}))
			})
		case len(p.events[r]) > 0:
			add(fmt.Sprintf("%s hears: %v", me, p.events[r][0]), false, func() (*exploredWorld, error) {
				next := w.clone()
				next.replicas[i].events[r] = p.events[r][1:]
				return next.settle(i, m.replicas.next(p.replica, input{kind: inputEvent, event: p.events[r][0]}))
			})
			if may && m.Lists {
				add(fmt.Sprintf("%s loses the watch of %v", me, r), true, func() (*exploredWorld, error) {
					next := w.fault()
					next.replicas[i].events[r], next.replicas[i].lists[r] = nil, true
					return next, nil
				})
			}
		}
	}
	for at, f := range p.flights {
		if f.answered {
			add(fmt.Sprintf("%s gets the answer to %v", me, f.request), false, func() (*exploredWorld, error) {
				return w.settle(i, m.replicas.next(p.replica, input{kind: inputAnswer, name: f.String(), answer: f.answer}))
			})
			continue
		}
		m.flightSteps(w, i, at, f, add)
	}
	for _, name := range p.replica.delayed {
		add(fmt.Sprintf("%s: %s is due again", me, name), false, func() (*exploredWorld, error) {
			return w.settle(i, m.replicas.next(p.replica, input{kind: inputRetry, name: name}))
		})
	}
	if may && m.Crashes {
		add(me+" crashes", true, func() (*exploredWorld, error) { return w.fault().crash(i), nil })
	}
}

func (w *exploredWorld) fault() *exploredWorld {
	next := w.clone()
	next.users.faults--
	return next
}

// crash ends a process. Requests that have not arrived are lost with it; calls may still reach the driver.
func (w *exploredWorld) crash(i int) *exploredWorld {
	next := w.clone()
	for _, f := range w.replicas[i].flights {
		if !f.answered && f.isCall() {
			next.driver.late = append(slices.Clone(next.driver.late), lateCall{f.verb, f.target, f.shared})
		}
	}
	next.replicas[i] = place{}
	if next.lease.holder == i {
		next.lease.expired = true
	}
	return next
}

// answer returns the world in which a request has been answered.
func (w *exploredWorld) answer(i, at int, a answer) *exploredWorld {
	next := w.clone()
	p := &next.replicas[i]
	p.flights = slices.Clone(p.flights)
	p.flights[at].answered, p.flights[at].answer = true, a
	return next
}

func (m *volumeModel) flightSteps(w *exploredWorld, i, at int, f flight, add addStep) {
	me, may := nameOfReplica(i)+": "+f.String(), w.users.faults > 0
	if !f.isCall() {
		do := func(fault, lost bool) func() (*exploredWorld, error) {
			return func() (*exploredWorld, error) {
				api, a, e := w.handle(f.request)
				next, err := m.checkWrite(w, f.request, w.changed(api, e))
				if fault {
					next = next.fault()
				}
				if lost {
					a = answer{err: errNoAnswer}
				}
				return next.answer(i, at, a), err
			}
		}
		add(me+": the API server does it", false, do(false, false))
		if may && f.verb == verbPatch && m.LostAnswers {
			add(me+": the API server does it, and the answer is lost", true, do(true, true))
			add(me+": is lost", true, func() (*exploredWorld, error) { return w.fault().answer(i, at, answer{err: errNoAnswer}), nil })
		}
		return
	}
	c := lateCall{f.verb, f.target, f.shared}
	switch {
	case w.driver.busy(c.target.VolumeHandle):
		add(me+": the driver is busy with the volume", false, func() (*exploredWorld, error) { return w.answer(i, at, answer{err: errPending}), nil })
		return
	case w.driver.refuses(c):
		add(me+": the driver refuses it", false, func() (*exploredWorld, error) { return w.answer(i, at, answer{err: errElsewhere}), nil })
		return
	}
	effect := func(w *exploredWorld, a answer) (*exploredWorld, error) {
		next := w.answer(i, at, a)
		next.driver = next.driver.after(c)
		return next, nil
	}
	add(me+": the driver does it", false, func() (*exploredWorld, error) { return effect(w, answer{}) })
	if !may {
		return
	}
	if m.DriverFails {
		add(me+": the driver fails", true, func() (*exploredWorld, error) { return w.fault().answer(i, at, answer{err: errDriver}), nil })
	}
	if m.LostAnswers {
		add(me+": the driver does it, and the answer is lost", true, func() (*exploredWorld, error) { return effect(w.fault(), answer{err: errDeadline}) })
	}
	if m.Hangs {
		add(me+": the driver hangs until the deadline", true, func() (*exploredWorld, error) {
			next := w.fault().answer(i, at, answer{err: errDeadline})
			next.driver.late = append(slices.Clone(next.driver.late), c)
			return next, nil
		})
	}
}

// leaseSteps: the lease is taken when it is free, runs out while its holder is stopped, and its holder notices. What the
// holder has sent is over by then: that is what the fence and the deadlines are for, and package lease explores that.
func (m *volumeModel) leaseSteps(w *exploredWorld, i int, add addStep) {
	p, me := w.replicas[i], nameOfReplica(i)
	switch {
	case p.replica.leads && w.lease.holder == i && !w.lease.expired && w.users.faults > 0 && m.Pauses:
		add(me+" stops, and its lease runs out", true, func() (*exploredWorld, error) {
			next := w.fault()
			next.lease.expired = true
			for at, f := range p.flights {
				err := error(errNoAnswer)
				if f.isCall() {
					err = errDeadline
					if !f.answered { // the driver has it, and works on
						next.driver.late = append(slices.Clone(next.driver.late), lateCall{f.verb, f.target, f.shared})
					}
				}
				next = next.answer(i, at, answer{err: err})
			}
			return next.settle(i, m.replicas.next(p.replica, input{kind: inputExpire}))
		})
	case p.replica.leads && p.replica.expired:
		add(me+" notices that it has lost the lease", false, func() (*exploredWorld, error) {
			return w.settle(i, m.replicas.next(p.replica, input{kind: inputLose}))
		})
	case !p.replica.leads && (w.lease.holder < 0 || w.lease.expired):
		add(me+" takes the lease", false, func() (*exploredWorld, error) {
			next := w.clone()
			in := input{kind: inputLead, continues: p.leased && w.lease.last == i}
			if len(w.replicas) > 1 {
				api := *w.api
				api.version[attachments]++
				next.api, in.version = &api, api.version[attachments]
			} else {
				in.continues = true // lease.Always
			}
			next.lease = leaseState{holder: i, last: i}
			next.replicas[i].leased = true
			return next.settle(i, m.replicas.next(p.replica, in))
		})
	}
}
