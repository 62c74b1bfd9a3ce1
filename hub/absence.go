package hub

import "time"

// busyPause is how long a driver that is away and still has calls in flight is left alone
// before it is looked at again.
const busyPause = time.Second

// absence says what a driver that cannot be called from here means for its lease. A driver
// that has just gone away is mostly back in a moment: that it is away counts only after the
// timeout.
//
// From then on the other replicas know that it cannot be called from here, and the lease
// goes to one that can call it. A csi-attacher that stands by announces nothing: so the
// lease is also let go, once, while nothing is in flight. If nobody takes it, the term that
// follows goes on whatever becomes of the driver: a driver that comes back is called at
// once, and one that comes and goes does not pass the lease around. The lease is let go
// again after the driver could be called for the timeout without a break.
type absence struct {
	connection *connection
	timeout    time.Duration // 0: there are no leases
	offered    bool          // the lease has been let go since; of the goroutine that attends to the term
}

// able reports whether the driver can be called from here, as lease.Claim asks.
func (a *absence) able() (able bool, changed <-chan struct{}, again time.Duration) {
	up, since, changed := a.connection.isUp()
	away := time.Since(since) // far longer than the timeout if it could never be called
	switch {
	case up:
		return true, changed, 0
	case away < a.timeout:
		return true, changed, a.timeout - away
	}
	return false, changed, 0
}

// begin begins a term.
func (a *absence) begin() {
	if a.timeout == 0 {
		return
	}
	if able, _, _ := a.able(); !able {
		a.offered = true // nobody has taken the lease, although it was free for its duration
	}
}

// look says whether the lease is to be let go, and when to look again: when changed is
// closed, or after the time that is returned. leave has to have nothing in flight for the
// driver, and nothing begin, or to report that something is.
func (a *absence) look(leave func() bool) (letGo bool, changed <-chan struct{}, again time.Duration) {
	if a.timeout == 0 {
		return false, nil, time.Hour
	}
	up, since, changed := a.connection.isUp()
	lasts := time.Since(since)
	switch {
	case lasts < a.timeout:
		return false, changed, a.timeout - lasts
	case up:
		a.offered = false
	case a.offered:
	case leave():
		a.offered = true
		return true, nil, 0
	default:
		return false, changed, busyPause
	}
	return false, changed, time.Hour
}
