package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// Finding is something that does not hold.
type Finding struct {
	About string // a volume, a driver or a hub
	Text  string
	at    time.Time // when it happened; zero: it is so now
}

// state is what an audit looks at.
type state struct {
	safety.Rest
	moving []string // volumes of pods that are still in a move
	books  []fakecsi.Books
}

// stateOf returns the state with these objects.
func (w *world) stateOf(vas []*storagev1.VolumeAttachment, pvs []*corev1.PersistentVolume) state {
	s := state{Rest: safety.Rest{Wants: map[string]safety.Want{}, Keeps: []string{}}}
	for _, va := range vas {
		if at := placeOf("volumeattachments", va.Name); at.Volume != "" {
			c := safety.AttachmentOf(va, attach.Finalizer(va.Spec.Attacher))
			c.Volume = at.Volume
			s.Attachments = append(s.Attachments, c)
		}
	}
	for _, pv := range pvs {
		s.Volumes = append(s.Volumes, safety.VolumeOf(pv, ""))
	}
	for _, p := range w.pods {
		now, busy := p.current()
		if busy {
			s.moving = append(s.moving, p.volume.name)
		}
		if now.node != "" {
			s.Wants[p.attachment(now.node).Name] = safety.Want{UID: string(now.uid), At: place{Driver: driverName(p.volume.driver), Volume: p.volume.name, Node: testbed.NodeID(now.node)}}
		}
	}
	for _, v := range w.persistent() {
		s.Keeps = append(s.Keeps, v.name)
	}
	for _, d := range w.Drivers {
		b := d.Backend.Books()
		s.books, s.Published, s.Running = append(s.books, b), slices.Concat(s.Published, b.Places()), slices.Concat(s.Running, b.RunningCalls())
	}
	return s
}

// lookExactly returns the state as the API server has it: a watch may be behind.
func (w *world) lookExactly(ctx context.Context) (state, error) {
	vas, err := w.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	pvs, noPVs := w.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err := errors.Join(err, noPVs); err != nil {
		return state{}, err
	}
	return w.stateOf(pointers(vas.Items), pointers(pvs.Items)), nil
}

func pointers[T any](items []T) (all []*T) {
	for i := range items {
		all = append(all, &items[i])
	}
	return all
}

// audit returns the findings of a state after all faults are healed. It checks that exactly what the pods ask for is attached,
// that each status agrees with the books, and that deleted objects have left nothing behind.
func (s state) audit() (f []Finding) {
	for _, v := range s.moving {
		f = append(f, Finding{About: v, Text: "its VolumeAttachment should be gone by now"})
	}
	return slices.Concat(f, findingsOf(s.Settled()...), allViolations(s.books))
}

// findingsOf returns broken rules as findings.
func findingsOf(errs ...error) (f []Finding) {
	for _, err := range errs {
		var b *safety.Broken
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			f = append(f, findingsOf(joined.Unwrap()...)...)
		} else if errors.As(err, &b) {
			f = append(f, Finding{About: b.About, Text: b.Text})
		}
	}
	return f
}

// allViolations returns what hubs must never do, whatever goes wrong.
func allViolations(books []fakecsi.Books) (f []Finding) {
	for _, b := range books {
		for _, v := range b.Violations {
			text := fmt.Sprintf("%s at %s, call %d, nodes %v: %s", v.Rule, v.Time.Format("15:04:05.000"), v.Call, v.Nodes, v.Detail)
			f = append(f, Finding{About: v.Volume, Text: text, at: v.Time})
		}
	}
	return f
}

// quietWithin bounds the time until an audit finds nothing.
const quietWithin = 5 * time.Minute

// awaitQuiet blocks until an audit finds nothing, and still finds nothing after each driver was listed
// so many times more: after two the hub has compared everything with the list. After quietWithin it returns
// the findings.
func (w *world) awaitQuiet(ctx context.Context, listings int) ([]Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, quietWithin)
	defer cancel()
	var listed map[string]int // listings to wait for, by driver; nil while the audit finds something
	for {
		s := w.stateOf(w.Attachments.List(), w.volumes.List())
		found, err := w.found()
		if bad := append(found, allViolations(s.books)...); len(bad) > 0 || err != nil {
			return bad, err // these findings stay
		}
		found = s.audit()
		notYet := func(b fakecsi.Books) bool { return b.Methods[fakecsi.ListVolumes].Ended < listed[b.Driver] }
		switch {
		case len(found) > 0:
			listed = nil
		case listed == nil:
			listed = map[string]int{}
			for _, b := range s.books {
				listed[b.Driver] = b.Methods[fakecsi.ListVolumes].Ended + listings
			}
			continue
		case !slices.ContainsFunc(s.books, notYet):
			s, err := w.lookExactly(ctx)
			return s.audit(), err
		}
		if wait(ctx, lookEvery); ctx.Err() != nil {
			if len(found) == 0 {
				found = []Finding{{Text: "the drivers are not listed any more"}}
			}
			return found, nil
		}
	}
}

// errDoesNotHold ends a run early: there are findings.
var errDoesNotHold = errors.New("something does not hold")

// settle waits until the audit finds nothing, and judges the history. With findings it returns errDoesNotHold.
func (w *world) settle(ctx context.Context, listings int) error {
	found, err := w.awaitQuiet(ctx, listings)
	found = append(found, w.judgeHistory()...)
	if err = errors.Join(err, ctx.Err()); err != nil || len(found) == 0 {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.findings = slices.CompactFunc(append(w.findings, found...), func(a, b Finding) bool { return a == b })
	return errDoesNotHold
}

// clear makes all pods leave for good and deletes all PersistentVolumes. The pods must rest.
func (w *world) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, quietWithin, fmt.Errorf("not within %v", quietWithin))
	defer cancel()
	volumes := w.persistent()
	for _, v := range volumes {
		v.gone.Store(true)
	}
	err := testbed.Each(ctx, len(w.pods), w.pods, func(ctx context.Context, p *pod) error {
		if now, _ := p.current(); now.node != "" {
			return p.leave(ctx, now)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return testbed.Each(ctx, len(volumes), volumes, func(ctx context.Context, v *volume) error { return v.remove(ctx) })
}

// touched is a VolumeAttachment that no hub serves.
var touched = testbed.VolumeAttachment{Name: "touch", Driver: "nobody", Node: "nowhere", PersistentVolume: "none"}

// touch makes it anew. A hub that has taken over removes finalizers from PersistentVolumes when it has seen an event or a
// bookmark from after that, and bookmarks come once a minute.
func (w *world) touch(ctx context.Context) error {
	if err := w.Cluster.Delete(ctx, touched); err != nil {
		return err
	}
	return w.Cluster.Create(ctx, touched)
}

// keepTouching touches once a second until ctx ends.
func (w *world) keepTouching(ctx context.Context) {
	w.running.Go(func() {
		for ; ctx.Err() == nil; wait(ctx, time.Second) {
			if err := w.touch(ctx); err != nil && ctx.Err() == nil {
				w.fail(err)
			}
		}
	})
}
