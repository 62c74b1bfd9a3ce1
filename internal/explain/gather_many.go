package explain

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// MostExplained is how many VolumeAttachments one question explains, the worst first. Each takes some reads.
const MostExplained = 200

const (
	// longWait is the time without success after which a VolumeAttachment counts as stuck if the hub does not say:
	// the hub's default of stuckAfter.
	longWait = 15 * time.Minute
	// slow is the time without success after which it counts as in trouble if the hub does not say.
	slow = time.Minute
)

// ofDriver reads a driver and its VolumeAttachments that are in trouble.
func (g *gatherer) ofDriver(ctx context.Context, name string) (found bool) {
	s := &Volume{Driver: name, Served: g.facts.Hub.View.Driver(name), CSIDriver: one(ctx, g, "CSIDriver", "", name, g.Kube.StorageV1().CSIDrivers().Get)}
	g.facts.Subject = s
	g.fillLeases(ctx, s)
	if s.Served != nil {
		if d, err := g.Hub.Driver(ctx, s.Served.Replica, name); err != nil {
			g.facts.Checks = Unreadable[[]status.Check](err)
		} else {
			g.facts.Checks = Present(&d.Checklist)
		}
	}
	g.ofMany(ctx, status.AttachmentFilter{Driver: name}, status.Broken, status.Attention)
	return s.Served != nil || s.CSIDriver.Value() != nil || len(items(s.Leases.All)) > 0 || len(items(g.facts.Listed)) > 0 || len(g.facts.Hub.View.Conflicts(name)) > 0 ||
		g.facts.Hub.Err != nil || s.CSIDriver.Err() != nil // the hub may serve it, the API server may have it
}

// ofNode reads a node and all its VolumeAttachments.
func (g *gatherer) ofNode(ctx context.Context, name string) (found bool, err error) {
	s := &Volume{NodeName: name, Node: one(ctx, g, Node, "", name, g.Kube.CoreV1().Nodes().Get), CSINode: one(ctx, g, "CSINode", "", name, g.Kube.StorageV1().CSINodes().Get)}
	g.facts.Subject = s
	g.ofMany(ctx, status.AttachmentFilter{Node: name}, status.HealthStates...)
	found = s.Node.Value() != nil || s.CSINode.Value() != nil || len(items(g.facts.Listed)) > 0
	if !found {
		err = s.Node.Err()
	}
	return found, err
}

// ofMany reads the VolumeAttachments that a filter selects, and all about those that are in one of some states of
// health.
func (g *gatherer) ofMany(ctx context.Context, f status.AttachmentFilter, states ...status.HealthState) {
	complete := g.readRows(ctx, f)
	g.facts.Listed = g.attachments(ctx, func(va *storagev1.VolumeAttachment) bool {
		return (f.Driver == "" || va.Spec.Attacher == f.Driver) && (f.Node == "" || va.Spec.NodeName == f.Node)
	})
	var chosen []Volume
	for _, va := range items(g.facts.Listed) {
		v := Volume{NodeName: va.Spec.NodeName, Driver: va.Spec.Attacher, Attachment: Present(&va)}
		row, known := g.rows[va.Name]
		switch {
		case known:
			v.Health = row.Health.State
		case !complete:
			v.Health = healthOf(&va, g.facts.Now)
		default:
			v.Health = status.Fine // the hub knows of no work for it
		}
		if slices.Contains(states, v.Health) {
			chosen = append(chosen, v)
		}
	}
	slices.SortStableFunc(chosen, func(a, b Volume) int { return cmp.Or(a.Health.Compare(b.Health), a.asked().Compare(b.asked())) })
	for _, v := range chosen {
		va, health := v.Attachment.Value(), v.Health
		if health == status.Fine && va.Status.Attached && va.DeletionTimestamp == nil {
			v.VolumeName = attach.VolumeName(va)
			v.Namespace, v.ClaimName, _ = strings.Cut(g.rows[va.Name].Claim, "/")
			g.facts.Settled = append(g.facts.Settled, v)
			continue
		}
		if len(g.facts.Volumes) == MostExplained {
			g.facts.More++
			continue
		}
		v = g.ofAttachment(ctx, va)
		v.Health = health
		g.facts.Volumes = append(g.facts.Volumes, v)
	}
}

// readRows reads what the hub knows about the VolumeAttachments that a filter selects. It reports whether these are all.
func (g *gatherer) readRows(ctx context.Context, f status.AttachmentFilter) (complete bool) {
	g.rows = map[string]status.Attachment{}
	if g.facts.Hub.Err != nil {
		return false
	}
	g.facts.RowsErr = g.Hub.Volumes(ctx, g.facts.Hub.View, f, func(a status.Attachment) {
		g.rows[a.Name] = a
		if !a.Call.Since.IsZero() {
			g.facts.Calls = append(g.facts.Calls, a)
		}
	})
	slices.SortFunc(g.facts.Calls, func(a, b status.Attachment) int {
		return cmp.Or(a.Call.Since.Compare(b.Call.Since), cmp.Compare(a.Name, b.Name))
	})
	return g.facts.RowsErr == nil
}

// healthOf returns the health of a VolumeAttachment by its object alone.
func healthOf(va *storagev1.VolumeAttachment, now time.Time) status.HealthState {
	since, failed := va.CreationTimestamp.Time, va.Status.AttachError != nil
	if va.DeletionTimestamp != nil {
		since, failed = va.DeletionTimestamp.Time, va.Status.DetachError != nil
	} else if va.Status.Attached {
		return status.Fine
	}
	switch waits := now.Sub(since); {
	case waits >= longWait:
		return status.Broken
	case failed || waits >= slow:
		return status.Attention
	}
	return status.Fine
}

// asked returns when the attach or the detach was asked for, zero without a VolumeAttachment.
func (v *Volume) asked() time.Time {
	va := v.Attachment.Value()
	switch {
	case va == nil:
		return time.Time{}
	case va.DeletionTimestamp != nil:
		return va.DeletionTimestamp.Time
	}
	return va.CreationTimestamp.Time
}

// ready returns the condition of a node that says whether it is ready, nil if it has none.
func ready(n *corev1.Node) *corev1.NodeCondition {
	if n == nil {
		return nil
	}
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c
		}
	}
	return nil
}
