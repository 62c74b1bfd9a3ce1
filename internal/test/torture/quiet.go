package torture

import (
	"context"
	"fmt"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/safety"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// rest lets all pods stay where they are after their present move.
func (w *world) rest() {
	w.resting.Store(true)
	for _, p := range w.pods {
		p.nudge()
	}
}

// resume lets all pods move again.
func (w *world) resume() {
	for _, p := range w.pods {
		select {
		case <-p.orders: // of the stretch before
		default:
		}
	}
	w.resting.Store(false)
}

// heal takes back what faults without a length have left behind.
func (w *world) heal(ctx context.Context) error {
	for i, s := range w.storages {
		if err := s.heal(w.load.latency); err != nil {
			return err
		}
		if err := w.config.set(i, func(s *settings) { *s = w.load.settings }); err != nil {
			return err
		}
	}
	for _, v := range w.persistent() {
		if err := v.create(ctx); err != nil {
			return err
		}
	}
	return nil
}

// awaitQuiet blocks until an audit finds nothing, and still finds nothing after each driver was listed
// twice more: by then the hub has compared everything with the list. After QuietWithin it returns
// the findings.
func (w *world) awaitQuiet(ctx context.Context) ([]Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, w.options.QuietWithin)
	defer cancel()
	var listed map[string]int // listings to wait for; nil while the audit finds something
	for {
		if err := w.loseAllForeign(); err != nil {
			return nil, err
		}
		s := w.look()
		if bad := append(w.found(), allViolations(s.books)...); len(bad) > 0 || w.failed() != nil {
			return bad, w.failed() // these findings stay
		}
		found := audit(s)
		switch {
		case len(found) > 0:
			listed = nil
		case listed == nil:
			listed = listings(s.books, 2)
		case reached(s.books, listed):
			return w.confirm(ctx)
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			if len(found) == 0 {
				found = []Finding{{Text: "the drivers are not listed any more"}}
			}
			return found, nil
		}
	}
}

// confirm audits once more, with what the API server returns now.
func (w *world) confirm(ctx context.Context) ([]Finding, error) {
	vas, pvs, err := w.list(ctx)
	if err != nil {
		return nil, err
	}
	s := w.look()
	s.attachments, s.volumes = nil, nil
	for i := range vas {
		s.attachments = append(s.attachments, &vas[i])
	}
	for i := range pvs {
		s.volumes = append(s.volumes, &pvs[i])
	}
	return audit(s), nil
}

// look returns the state as the watches and the books have it.
func (w *world) look() state {
	s := state{wanted: map[string]safety.Want{}, attachments: w.Attachments.List(), volumes: w.volumes.List()}
	for _, p := range w.pods {
		now, busy := p.current()
		if busy {
			s.moving = append(s.moving, p.volume.name)
		}
		if now.node != "" {
			at := place{Driver: p.volume.storage.Name, Volume: p.volume.name, Node: testbed.NodeID(now.node)}
			s.wanted[p.attachment(now.node).Name] = safety.Want{UID: string(now.uid), At: at}
		}
	}
	if !w.cleared {
		for _, v := range w.persistent() {
			s.persistent = append(s.persistent, v.name)
		}
	}
	for _, st := range w.storages {
		s.books = append(s.books, st.Backend.Books())
	}
	return s
}

// listings returns, by driver, how many listings there will be after so many more.
func listings(books []fakecsi.Books, more int) map[string]int {
	n := map[string]int{}
	for _, b := range books {
		n[b.Driver] = b.Methods[fakecsi.ListVolumes].Ended + more
	}
	return n
}

func reached(books []fakecsi.Books, listed map[string]int) bool {
	for _, b := range books {
		if b.Methods[fakecsi.ListVolumes].Ended < listed[b.Driver] {
			return false
		}
	}
	return true
}

// clear makes all pods leave for good and deletes all PersistentVolumes. The pods must rest.
func (w *world) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.options.QuietWithin, fmt.Errorf("not within %v", w.options.QuietWithin))
	defer cancel()
	w.cleared = true
	err := testbed.Each(ctx, len(w.pods), w.pods, func(ctx context.Context, p *pod) error {
		if now, _ := p.current(); now.node != "" {
			return p.leave(ctx, now)
		}
		return nil
	})
	if err != nil {
		return err
	}
	volumes := w.persistent()
	return testbed.Each(ctx, len(volumes), volumes, func(ctx context.Context, v *volume) error { return v.remove(ctx) })
}
