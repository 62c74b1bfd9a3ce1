package volume

import "fmt"

// Remains says what a Table still holds of unowned publications and of work, "" for nothing.
func (t *Table) Remains() string {
	items, _ := t.Queue.All()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(items)+len(t.dangling) == 0 {
		return ""
	}
	return fmt.Sprintf("%d items, and unowned publications of %d volumes", len(items), len(t.dangling))
}
