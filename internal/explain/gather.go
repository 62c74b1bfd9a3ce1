package explain

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
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
	g := gatherer{Sources: s, facts: Facts{Now: time.Now(), Question: q}}
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
	// all VolumeAttachments, once they were asked for.
	attachments *Object[[]storagev1.VolumeAttachment]
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
		va, err := g.Kube.StorageV1().VolumeAttachments().Get(ctx, q.Name, metav1.GetOptions{})
		if err != nil {
			return false, ignoreNotFound(err)
		}
		g.facts.Volumes = []Volume{g.asked(ctx, va)}
	case PersistentVolume:
		pv, err := g.Kube.CoreV1().PersistentVolumes().Get(ctx, q.Name, metav1.GetOptions{})
		if err != nil {
			return false, ignoreNotFound(err)
		}
		v := Volume{VolumeName: pv.Name}
		if claim := pv.Spec.ClaimRef; claim != nil {
			v.Namespace, v.ClaimName = claim.Namespace, claim.Name
		}
		g.everywhere(ctx, v)
	case PersistentVolumeClaim:
		claim, err := g.Kube.CoreV1().PersistentVolumeClaims(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
		if err != nil {
			return false, ignoreNotFound(err)
		}
		g.everywhere(ctx, Volume{Namespace: q.Namespace, ClaimName: q.Name, VolumeName: claim.Spec.VolumeName})
	case Pod:
		pod, err := g.Kube.CoreV1().Pods(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
		if err != nil {
			return false, ignoreNotFound(err)
		}
		g.facts.Pod = pod
		g.ofPod(ctx, pod)
	default:
		return false, fmt.Errorf("%q is no kind that can be explained", q.Kind)
	}
	return true, nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// asked is the volume that a VolumeAttachment is about.
func (g *gatherer) asked(ctx context.Context, va *storagev1.VolumeAttachment) Volume {
	v := Volume{VolumeName: attach.VolumeName(va), NodeName: va.Spec.NodeName}
	v.Attachment.Value = va
	v.Others, _ = g.othersOf(ctx, v.VolumeName, va.Name)
	return v
}

// everywhere makes one volume for each node that it is wanted on.
func (g *gatherer) everywhere(ctx context.Context, v Volume) {
	if v.VolumeName == "" { // a claim that is not bound
		g.facts.Volumes = []Volume{v}
		return
	}
	all, err := g.othersOf(ctx, v.VolumeName, "")
	v.Attachment.Err = err
	nodes := map[string]bool{}
	for i := range all {
		one := v
		one.NodeName, one.Attachment.Value = all[i].Spec.NodeName, &all[i]
		one.Others, _ = g.othersOf(ctx, v.VolumeName, all[i].Name)
		nodes[one.NodeName] = true
		g.facts.Volumes = append(g.facts.Volumes, one)
	}
	for _, p := range g.users(ctx, &v) {
		if node := p.Spec.NodeName; node != "" && !nodes[node] && err == nil {
			nodes[node] = true
			one := v
			one.NodeName, one.Others = node, all
			g.facts.Volumes = append(g.facts.Volumes, one)
		}
	}
	if len(g.facts.Volumes) == 0 {
		g.facts.Volumes = []Volume{v}
	}
}

// ofPod makes one volume for each of a Pod that could be attached.
func (g *gatherer) ofPod(ctx context.Context, pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		mounted := &pod.Spec.Volumes[i]
		v := Volume{Mount: mounted.Name, Namespace: pod.Namespace, NodeName: pod.Spec.NodeName}
		switch {
		case mounted.PersistentVolumeClaim != nil:
			v.ClaimName = mounted.PersistentVolumeClaim.ClaimName
		case mounted.Ephemeral != nil:
			v.ClaimName = pod.Name + "-" + mounted.Name
		case mounted.CSI != nil:
			v.Inline = mounted.CSI.Driver
		default:
			continue
		}
		if v.ClaimName != "" {
			v.Claim = read(g.Kube.CoreV1().PersistentVolumeClaims(v.Namespace).Get(ctx, v.ClaimName, metav1.GetOptions{}))
		}
		if v.Claim.Value != nil {
			v.VolumeName = v.Claim.Value.Spec.VolumeName
		}
		if v.VolumeName != "" {
			all, err := g.othersOf(ctx, v.VolumeName, "")
			v.Attachment.Err = err
			for j := range all {
				if va := &all[j]; va.Spec.NodeName == v.NodeName {
					v.Attachment.Value = va
				} else {
					v.Others = append(v.Others, *va)
				}
			}
		}
		g.facts.Volumes = append(g.facts.Volumes, v)
	}
}

// othersOf returns the VolumeAttachments of a PersistentVolume but for one.
func (g *gatherer) othersOf(ctx context.Context, volume, but string) ([]storagev1.VolumeAttachment, error) {
	if g.attachments == nil {
		all := Object[[]storagev1.VolumeAttachment]{}
		list, err := g.Kube.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
		if all.Err = err; err == nil {
			all.Value = &list.Items
		}
		g.attachments = &all
	}
	if g.attachments.Value == nil || volume == "" {
		return nil, g.attachments.Err
	}
	var others []storagev1.VolumeAttachment
	for _, va := range *g.attachments.Value {
		if attach.VolumeName(&va) == volume && va.Name != but {
			others = append(others, va)
		}
	}
	return others, nil
}

// users returns the Pods that use a claim and have not ended.
func (g *gatherer) users(ctx context.Context, v *Volume) []corev1.Pod {
	if v.ClaimName == "" {
		return nil
	}
	list, err := g.Kube.CoreV1().Pods(v.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		v.UsersErr = err
		return nil
	}
	var users []corev1.Pod
	for _, p := range list.Items {
		if !finished(&p) && uses(&p, v.ClaimName) {
			users = append(users, p)
		}
	}
	return users
}

func uses(p *corev1.Pod, claim string) bool {
	for _, v := range p.Spec.Volumes {
		if c := v.PersistentVolumeClaim; c != nil && c.ClaimName == claim || v.Ephemeral != nil && p.Name+"-"+v.Name == claim {
			return true
		}
	}
	return false
}
