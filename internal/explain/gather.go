package explain

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

// HubReader is asked what the replicas of a hub know: *hubclient.Hub.
type HubReader interface {
	// View asks all replicas. Those that do not answer are in it with their errors.
	View(context.Context) hubclient.View
	// Attachment asks one replica about a VolumeAttachment; nil if it knows none.
	Attachment(ctx context.Context, replica, name string) (*status.Attachment, error)
}

// Kube is the part of the Kubernetes API that is read; every kubernetes.Interface is one.
type Kube interface {
	CoordinationV1() coordinationv1client.CoordinationV1Interface
	CoreV1() corev1client.CoreV1Interface
	StorageV1() storagev1client.StorageV1Interface
}

// Sources are what facts are gathered from. Nothing is written.
type Sources struct {
	Kube Kube
	Hub  HubReader // nil: HubErr says why it cannot be asked
	// HubErr is why there is no Hub.
	HubErr error
	// Namespace is that of the hub: where leases are looked for if they may not be listed.
	Namespace string
}

// Gather finds out what can be found out about a question. What may not be read is left
// open in the facts; the error says that the object itself that was asked for could not
// be read.
func Gather(ctx context.Context, q Question, s Sources) (Facts, error) {
	g := gatherer{Sources: s, facts: Facts{Now: time.Now(), Question: q}, objects: map[string]any{}}
	g.askHub(ctx)
	found, err := g.look(ctx, q)
	if err != nil {
		return Facts{}, fmt.Errorf("read %s: %w", q, err)
	}
	g.facts.Found = found
	for i := range g.facts.Volumes {
		g.fill(ctx, &g.facts.Volumes[i])
	}
	return g.facts, nil
}

// gatherer gathers the facts of one question.
type gatherer struct {
	Sources
	facts Facts
	// objects are those that were read, by kind and name: each is read once, so that it is
	// the same in all places.
	objects map[string]any
}

func (g *gatherer) askHub(ctx context.Context) {
	if g.Hub == nil {
		g.facts.Hub.Err = g.HubErr
		if g.HubErr == nil {
			g.facts.Hub.Err = errors.New("it was not asked")
		}
		return
	}
	view := g.Hub.View(ctx)
	g.facts.Hub.View = view
	if !view.Reached() {
		var problems []error
		for _, r := range view.Replicas {
			problems = append(problems, fmt.Errorf("%s: %s", r.Replica, r.Error))
		}
		g.facts.Hub.Err = errors.Join(problems...)
		if len(problems) == 0 {
			g.facts.Hub.Err = errors.New("it has no replica")
		}
	}
}

// look finds the object that was asked for and the volumes that it is about.
func (g *gatherer) look(ctx context.Context, q Question) (found bool, err error) {
	switch q.Kind {
	case VolumeAttachment:
		va := one(ctx, g, q.Kind, "", q.Name, g.Kube.StorageV1().VolumeAttachments().Get)
		if va.Value() != nil {
			g.facts.Volumes = []Volume{g.ofAttachment(ctx, va.Value())}
		}
		return va.Value() != nil, va.Err()
	case PersistentVolume:
		pv := g.persistentVolume(ctx, q.Name)
		if pv.Value() != nil {
			g.onEachNode(ctx, Volume{VolumeName: q.Name})
		}
		return pv.Value() != nil, pv.Err()
	case PersistentVolumeClaim:
		claim := g.claim(ctx, q.Namespace, q.Name)
		if claim.Value() != nil {
			g.onEachNode(ctx, Volume{Namespace: q.Namespace, ClaimName: q.Name, VolumeName: claim.Value().Spec.VolumeName})
		}
		return claim.Value() != nil, claim.Err()
	case Pod:
		pod := one(ctx, g, q.Kind, q.Namespace, q.Name, g.Kube.CoreV1().Pods(q.Namespace).Get)
		if g.facts.Pod = pod.Value(); g.facts.Pod != nil {
			g.ofPod(ctx, pod.Value())
		}
		return pod.Value() != nil, pod.Err()
	}
	return false, fmt.Errorf("%q is no kind that can be explained", q.Kind)
}
