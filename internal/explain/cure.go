package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// cures add the exact commands that mend what a finding names, by its verdict. They decide by objects, never by the text of an
// error, whose writer could name something else. Other findings have a sentence only. The hub itself has the commands for a
// full node and for a dangling volume.
var cures = map[diagnosis.Verdict]func(*walk, *Finding){
	diagnosis.LeaseHeld:           (*walk).freeLease,
	diagnosis.SecretMissing:       (*walk).makeSecret,
	diagnosis.NodeMissing:         (*walk).withdraw,
	diagnosis.AttachedElsewhere:   (*walk).outOfService,
	diagnosis.AttachRequiredWrong: (*walk).requireAttach,
}

func (w *walk) cure(f *Finding) {
	if find := cures[f.Verdict]; find != nil {
		find(w, f)
	}
}

// evidence reads what cures need. What is in order costs no requests.
func (g *gatherer) evidence(ctx context.Context) {
	read := func(v *Volume, verdict diagnosis.Verdict) {
		if other := v.otherNode(); verdict == diagnosis.AttachedElsewhere && other != nil {
			v.OtherNode = one(ctx, g, "Node", "", other.Spec.NodeName, g.Kube.CoreV1().Nodes().Get)
		}
		if verdict == diagnosis.LeaseHeld {
			lease, _ := (&walk{Facts: &g.facts, Volume: v}).lease()
			v.Holders = g.pods(ctx, lease.Namespace, func(*corev1.Pod) bool { return true })
		}
	}
	for i := range g.facts.Volumes {
		if stop := explainVolume(&g.facts, i).Stop; stop != nil {
			read(&g.facts.Volumes[i], stop.Verdict)
		}
	}
	if g.facts.Question.Kind == Driver && g.facts.Found {
		subject, _ := explainDriver(&g.facts, "")
		for _, reason := range subject.Reasons {
			read(g.facts.Subject, reason.Verdict)
		}
	}
}

// kubectlWord is where a command line runs kubectl.
var kubectlWord = regexp.MustCompile(`(^|\| )kubectl `)

// through adds to commands the flags by which explain itself reached the cluster: without them, they would act on that of the
// current context. It returns none if they cannot be printed.
func (f *Facts) through(commands []string) []string {
	if !diagnosis.Printable(commands...) {
		return nil
	}
	if len(f.Access) == 0 || len(commands) == 0 {
		return commands
	}
	flags := diagnosis.Commands(f.Access)
	if flags == nil {
		return nil
	}
	all := make([]string, len(commands))
	for i, c := range commands {
		all[i] = kubectlWord.ReplaceAllStringFunc(c, func(word string) string { return word + flags[0] + " " })
	}
	return all
}

// commands returns command lines, given as their words.
func (f *Facts) commands(lines ...[]string) []string { return f.through(diagnosis.Commands(lines...)) }

// makeSecret makes the Secret of a volume.
func (w *walk) makeSecret(f *Finding) {
	if s := w.Secret; s.Object.Missing() {
		f.Commands = w.commands([]string{"kubectl", "-n", s.Namespace, "create", "secret", "generic", s.Name, "--from-env-file=FILE"})
		f.Next += " FILE has its keys and values, one KEY=VALUE in a line, as the driver's documentation has them."
	}
}

// withdraw deletes a VolumeAttachment for a node that is gone, after the Pods that ask for it. The hub removes its finalizer
// only after it has detached what may be attached.
func (w *walk) withdraw(f *Finding) {
	va := w.Attachment.Value()
	if va == nil || va.DeletionTimestamp != nil || va.Status.Attached {
		return
	}
	var lines [][]string
	for _, pod := range items(w.Users) {
		if pod.Spec.NodeName == va.Spec.NodeName && pod.DeletionTimestamp == nil {
			lines = append(lines, []string{"kubectl", "-n", pod.Namespace, "delete", "pod", pod.Name, "--wait=false"})
		}
	}
	f.Commands = w.commands(append(lines, []string{"kubectl", "delete", "volumeattachment", va.Name})...)
}

// otherNode returns the VolumeAttachment by which a volume is attached to another node, nil without one.
func (v *Volume) otherNode() *storagev1.VolumeAttachment {
	for _, other := range items(v.Others) {
		if other.DeletionTimestamp == nil && other.Status.Attached {
			return &other
		}
	}
	return nil
}

// outOfService names the node to which a volume is attached if that is not ready: its kubelet does not unmount the volume,
// and kube-controller-manager does not detach it before the taint says that the machine is off.
func (w *walk) outOfService(f *Finding) {
	other, node := w.otherNode(), w.OtherNode.Value()
	c := ready(node)
	if other == nil || c == nil || c.Status == corev1.ConditionTrue {
		return
	}
	w.note(*f)
	*f = w.finding(diagnosis.Diagnosis{Verdict: diagnosis.AttachedToNotReadyNode, Object: "Node " + node.Name, Since: c.LastTransitionTime.Time,
		Fact:   fmt.Sprintf("not ready, and the volume is attached there (VolumeAttachment %s)", other.Name),
		Detail: cmp.Or(c.Message, c.Reason)})
	untaint := fmt.Sprintf("When the node is back, remove the taint: kubectl taint nodes %s %s-.", node.Name, corev1.TaintNodeOutOfService)
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }) {
		f.Next = "Wait: the node has the taint " + corev1.TaintNodeOutOfService + ", so kube-controller-manager deletes its Pods and detaches their volumes. " + untaint
		return
	}
	f.Next = fmt.Sprintf("Make sure that the machine of node %s is off: two nodes that write to the volume destroy its data. Then taint the node: kube-controller-manager deletes its Pods and detaches their volumes. %s", node.Name, untaint)
	f.Commands = w.commands([]string{"kubectl", "taint", "nodes", node.Name, corev1.TaintNodeOutOfService + "=nodeshutdown:NoExecute"})
}

// publishCapability is the capability of a driver whose volumes have to be attached, as the hub reports it.
const publishCapability = "PUBLISH_UNPUBLISH_VOLUME"

// attachRequiredWrong reports whether the CSIDriver forbids an attach that the driver needs. Some drivers can do without
// the attach that they offer: so it counts only if a Pod waits for its volumes for longer than is usual.
func (w *walk) attachRequiredWrong() bool {
	return w.Served != nil && slices.Contains(w.Served.Capabilities, publishCapability) && len(w.waitingPods()) > 0
}

// waitingPods returns the Pods with the volume that have a node and have waited there for their start for longer than
// slow.
func (w *walk) waitingPods() []corev1.Pod {
	users := items(w.Users)
	if w.Pod != nil && !slices.ContainsFunc(users, func(p corev1.Pod) bool { return p.UID == w.Pod.UID }) {
		users = append(slices.Clip(users), *w.Pod)
	}
	return slices.DeleteFunc(slices.Clone(users), func(p corev1.Pod) bool {
		return p.Spec.NodeName == "" || p.Status.Phase != corev1.PodPending || p.DeletionTimestamp != nil || w.Now.Sub(scheduled(&p)) < slow ||
			slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
				return c.State.Waiting == nil || c.State.Waiting.Reason != "ContainerCreating" && c.State.Waiting.Reason != "PodInitializing"
			})
	})
}

// scheduled returns when a Pod got its node, else when it was created.
func scheduled(p *corev1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return p.CreationTimestamp.Time
}

// requireAttach makes the CSIDriver again with attachRequired: true, since the API server lets nobody change the field.
// The kubelet decides for the life of a Pod whether its volumes are attached, so that the waiting Pods are made again too.
func (w *walk) requireAttach(f *Finding) {
	change := diagnosis.Commands(
		[]string{"kubectl", "get", "csidriver", w.Driver, "-o", "json"},
		[]string{"kubectl", "patch", "--local", "-f", "-", "--type=merge", "-p", `{"spec":{"attachRequired":true}}`, "-o", "json"},
		[]string{"kubectl", "replace", "--force", "-f", "-"})
	if change == nil {
		return
	}
	var lines [][]string
	for _, pod := range w.waitingPods() {
		if metav1.GetControllerOf(&pod) == nil {
			f.Next += " Delete " + ref(Pod, pod.Namespace, pod.Name) + " and create it again: it has no controller that does."
			continue
		}
		lines = append(lines, []string{"kubectl", "-n", pod.Namespace, "delete", "pod", pod.Name})
	}
	f.Commands = w.through(append([]string{strings.Join(change, " | ")}, diagnosis.Commands(lines...)...))
}

// unrenewedAfter is how long a lease must not have been renewed for its holder to count as gone, beside its Pod: holders
// renew it more often, also those of drivers with long leases. They need not have the name of a Pod.
const unrenewedAfter = 40 * time.Second

// freeLease takes the lease away from another attacher that is gone. A living one is named: its Pod has to end.
func (w *walk) freeLease(f *Finding) {
	l := w.heldLease()
	if l == nil || w.Holders.Value() == nil {
		return
	}
	holder := *l.Spec.HolderIdentity
	if pod := w.podOf(holder); pod != nil {
		f.Fact += fmt.Sprintf("; the holder is Pod %s/%s", pod.Namespace, pod.Name)
		return
	}
	if l.Spec.RenewTime == nil || w.Now.Sub(l.Spec.RenewTime.Time) < unrenewedAfter {
		return
	}
	r := w.record(l)
	expiry := fmt.Sprintf("last renewed %s; it expires in %s if it is not renewed", diagnosis.Ago(r.Renewed, w.Now), diagnosis.Length(r.Renewed.Add(r.Duration).Sub(w.Now)))
	gone := w.finding(diagnosis.Diagnosis{Verdict: diagnosis.LeaseHolderGone, Object: f.Object,
		Fact: fmt.Sprintf("held by %s, whose Pod does not exist in namespace %s", holder, l.Namespace), Detail: expiry,
		Actions: []string{"Free the lease, or wait until it expires: the hub takes it then. The command changes nothing if the holder has renewed the lease in the meantime: then it lives."}})
	gone.Age = f.Age
	type operation map[string]any
	patch, err := json.Marshal([]operation{ // its tests make it fail if the lease has changed
		{"op": "test", "path": "/spec/holderIdentity", "value": holder}, {"op": "test", "path": "/spec/renewTime", "value": l.Spec.RenewTime},
		{"op": "replace", "path": "/spec/holderIdentity", "value": ""}})
	if err == nil { // always: they are strings and a time
		gone.Commands = w.commands([]string{"kubectl", "-n", l.Namespace, "patch", "lease", l.Name, "--type=json", "-p", string(patch)})
	}
	*f = gone
}

// heldLease returns the lease that the hub waits for if another attacher holds it, else nil.
func (w *walk) heldLease() *coordinationv1.Lease {
	lease, found := w.lease()
	if !found || lease.Holder == "" || w.isReplica(lease.Holder) {
		return nil
	}
	for i, l := range items(w.Leases.All) {
		if l.Namespace == lease.Namespace && l.Name == lease.Name && ptr.Deref(l.Spec.HolderIdentity, "") == lease.Holder {
			return &items(w.Leases.All)[i]
		}
	}
	return nil
}

// podOf returns the Pod that holds a lease, nil if there is none. The identity of a csi-attacher is the name of its host:
// that of its Pod, or that of the node if the Pod has the network of the node. Others add a random part.
func (w *walk) podOf(identity string) *corev1.Pod {
	host, _, _ := strings.Cut(identity, "_")
	for i, p := range items(w.Holders) {
		onNode := p.Spec.HostNetwork && p.Spec.NodeName != "" && (strings.HasPrefix(p.Spec.NodeName, host+".") || strings.HasPrefix(host, p.Spec.NodeName+".") || host == p.Spec.NodeName)
		if !finished(&p) && (p.Name == host || p.Spec.Hostname == host || onNode) {
			return &items(w.Holders)[i]
		}
	}
	return nil
}
