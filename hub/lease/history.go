package lease

import "sync"

// history keeps, for each lease, how the last term of this process ended.
type history struct {
	mu   sync.Mutex
	last map[Name]record // the lease as this process wrote it last
}

func (h *history) note(n Name, r record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last[n] = r
}

// continues reports whether nobody else held the lease between the last term of this
// process and the moment at which it looked like prior.
func (h *history) continues(n Name, prior record, self string) bool {
	h.mu.Lock()
	last, ok := h.last[n]
	h.mu.Unlock()
	if !ok || prior.uid != last.uid {
		return false
	}
	return prior.version == last.version || prior.holder == self && prior.transitions == last.transitions
}
