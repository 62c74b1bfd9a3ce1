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

// HubReader asks the replicas of a hub: *hubclient.Hub.
type HubReader interface {
	// View asks all replicas. A replica that does not answer is in it with its error.
	View(context.Context) hubclient.View
	// Volumes passes the VolumeAttachments that a filter selects to take, each once. The error says what could not be
	// listed.
	Volumes(ctx context.Context, v hubclient.View, f status.AttachmentFilter, take func(status.Attachment)) error
	// Driver asks one replica about a driver, with its checklist.
	Driver(ctx context.Context, replica, name string) (*status.Driver, error)
	// Attachment asks one replica about a VolumeAttachment; nil if it knows none.
	Attachment(ctx context.Context, replica, name string) (*status.Attachment, error)
	// VolumeHealth has one replica ask the driver of a VolumeAttachment about the health of the volume.
	VolumeHealth(ctx context.Context, replica, name string) (*status.VolumeHealth, error)
}

// Kube is the part of the Kubernetes API that Gather reads; every kubernetes.Interface implements it.
type Kube interface {
	CoordinationV1() coordinationv1client.CoordinationV1Interface
	CoreV1() corev1client.CoreV1Interface
	StorageV1() storagev1client.StorageV1Interface
}

// Sources are what Gather reads. Nothing is written.
type Sources struct {
	Kube Kube
	Hub  HubReader // nil: HubErr says why it cannot be asked
	// HubErr is why there is no Hub.
	HubErr error
	// Namespace is the namespace of the hub: Gather reads leases there if it may not list all.
	Namespace string
	// Access are the flags of kubectl and csi-attach-hub that lead to the cluster of Kube, such as "--context=prod"; none for
	// the current one. All commands of the report get them.
	Access []string
}

// Gather reads what there is about a question. The facts have the errors of what could not be read.
// Gather itself returns an error only if it could not read the object of the question.
func Gather(ctx context.Context, q Question, s Sources) (Facts, error) {
	g := gatherer{Sources: s, facts: Facts{Now: time.Now(), Question: q, Access: s.Access}, objects: map[string]any{}}
	g.askHub(ctx)
	found, err := g.look(ctx, q)
	if err != nil {
		return Facts{}, fmt.Errorf("read %s: %w", q, err)
	}
	g.facts.Found = found
	for i := range g.facts.Volumes {
		g.fill(ctx, &g.facts.Volumes[i])
	}
	g.evidence(ctx)
	return g.facts, nil
}

// gatherer gathers the facts of one question.
type gatherer struct {
	Sources
	facts Facts
	// objects are the Objects that were read, by kind and name. Each is read once, so that all
	// volumes see the same state.
	objects map[string]any
	// rows are the VolumeAttachments in the hub, by name, if the question is about many.
	rows map[string]status.Attachment
}

func (g *gatherer) askHub(ctx context.Context) {
	if g.Hub == nil {
		g.facts.Hub.Err = g.HubErr
		if g.HubErr == nil {
			g.facts.Hub.Err = errors.New("not asked")
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
			g.facts.Hub.Err = errors.New("no replica was found")
		}
	}
}

// look finds the object of the question and its volumes.
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
	case Driver:
		return g.ofDriver(ctx, q.Name), nil
	case Node:
		return g.ofNode(ctx, q.Name)
	}
	return false, fmt.Errorf("cannot explain objects of kind %q", q.Kind)
}
