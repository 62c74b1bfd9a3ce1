package hub

import "sync"

// halt is a pause that the hub itself has put on a driver, because another attacher was
// found at work for it. It lasts until somebody changes the driver's settings.
type halt struct {
	mu      sync.Mutex
	why     string        // empty: there is none
	changed chan struct{} // closed at the next change
}

func newHalt() *halt { return &halt{changed: make(chan struct{})} }

// get returns why there is a halt, "" if there is none, and a channel that is closed
// when that changes.
func (h *halt) get() (why string, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why, h.changed
}

// set puts the halt on, or takes it off with "".
func (h *halt) set(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if why == h.why {
		return
	}
	h.why = why
	close(h.changed)
	h.changed = make(chan struct{})
}
