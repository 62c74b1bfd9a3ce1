package lease

import "time"

// isAble asks the claim whether the driver can be called from here, and when to ask again.
func (c Claim) isAble() (able bool, changed <-chan struct{}, again time.Duration) {
	if c.Able == nil {
		return true, nil, 0
	}
	return c.Able()
}

// ask notes whether the driver can be called from here, and tells the other replicas of a
// change. It is to be called again when changed is closed, and after the time that it
// returns, which is limit at most.
func (h *hold) ask(limit time.Duration) (changed <-chan struct{}, again time.Duration) {
	able, changed, again := h.claim.isAble()
	if again <= 0 || again > limit {
		again = limit
	}
	h.mu.Lock()
	isNew := able != h.able
	h.able = able
	if isNew && able {
		h.opened = time.Now()
	}
	h.mu.Unlock()
	if isNew {
		h.claimed()
	}
	return changed, again
}

// ability returns whether the driver can be called from here, and since when the claim
// stands: since it was made, or since the driver can be called again.
func (h *hold) ability() (able bool, opened time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.able, h.opened
}
