package volume

import (
	"fmt"
	"time"
)

// Remains says what a Table still holds of unowned publications and of work, "" for nothing.
func (t *Table) Remains() string {
	items := 0
	for _, l := range t.Queue.Lanes(time.Now()) {
		items += l.Queued + l.Delayed + l.Running
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if items+len(t.dangling) == 0 {
		return ""
	}
	return fmt.Sprintf("%d items, and unowned publications of %d volumes", items, len(t.dangling))
}
