package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// cure adds the exact commands that mend what a finding names. It decides by objects, never by the text of an error, whose
// writer could name something else. Other findings have a sentence only. The hub itself has the commands for a full node and
// for a dangling volume.
func (v *volume) cure(f *diagnosis.Diagnosis) {
	switch f.Verdict {
	case diagnosis.LeaseHolderGone:
		v.freeLease(f)
	case diagnosis.SecretMissing:
		if namespace, name, named := strings.Cut(v.secret(), "/"); named {
			f.Commands = v.commands([]string{"kubectl", "-n", namespace, "create", "secret", "generic", name, "--from-env-file=FILE"})
			f.Actions = append(f.Actions, "FILE has its keys and values, one KEY=VALUE in a line, as the driver's documentation has them.")
		}
	case diagnosis.NodeMissing:
		v.withdraw(f)
	case diagnosis.AttachedElsewhere:
		v.outOfService(f)
	case diagnosis.AttachRequiredWrong:
		v.requireAttach(f)
	}
}

// secret returns the Secret that the calls for the volume need, as "namespace/name", "" if they need none or it is not known.
func (v *volume) secret() string {
	if spec := v.spec(); spec != nil && spec.CSI != nil && spec.CSI.ControllerPublishSecretRef != nil {
		return spec.CSI.ControllerPublishSecretRef.Namespace + "/" + spec.CSI.ControllerPublishSecretRef.Name
	}
	return ""
}

// kubectlWord is where a command line runs kubectl.
var kubectlWord = regexp.MustCompile(`(^|\| )kubectl `)

// through adds to commands the flags by which explain itself reached the cluster: without them, they would act on that of the
// current context. It returns none if they cannot be printed.
func (e *explainer) through(commands []string) []string {
	flags := diagnosis.Commands(e.Access)
	if len(commands) == 0 || flags == nil || !diagnosis.Printable(commands...) {
		return nil
	}
	all := make([]string, len(commands))
	for i, c := range commands {
		all[i] = kubectlWord.ReplaceAllStringFunc(c, func(word string) string { return strings.TrimRight(word+flags[0], " ") + " " })
	}
	return all
}

// commands returns command lines, given as their words.
func (e *explainer) commands(lines ...[]string) []string {
	return e.through(diagnosis.Commands(lines...))
}

// withdraw deletes a VolumeAttachment for a node that is gone, after the Pods that need it. The hub removes its finalizer
// only after it has detached what may be attached.
func (v *volume) withdraw(f *diagnosis.Diagnosis) {
	va := v.va.value
	if va == nil || va.DeletionTimestamp != nil || va.Status.Attached {
		return
	}
	var lines [][]string
	for _, pod := range items(v.pods) {
		if pod.Spec.NodeName == va.Spec.NodeName && pod.DeletionTimestamp == nil {
			lines = append(lines, []string{"kubectl", "-n", pod.Namespace, "delete", "pod", pod.Name, "--wait=false"})
		}
	}
	f.Commands = v.commands(append(lines, []string{"kubectl", "delete", "volumeattachment", va.Name})...)
}

// outOfService names the node to which a volume is attached if that is not ready: its kubelet does not unmount the volume,
// and kube-controller-manager does not detach it before the taint says that the machine is off.
func (v *volume) outOfService(f *diagnosis.Diagnosis) {
	node := v.otherNode.value
	c := ready(node)
	if c == nil || c.Status == corev1.ConditionTrue {
		return
	}
	v.note(*f)
	*f = diagnosis.New(diagnosis.AttachedToNotReadyNode, "Node "+node.Name, "not ready", diagnosis.Because("the volume is attached there", cmp.Or(c.Message, c.Reason))).From(c.LastTransitionTime.Time)
	untaint := fmt.Sprintf("When the node is back, remove the taint: kubectl taint nodes %s %s-.", node.Name, corev1.TaintNodeOutOfService)
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }) {
		f.Actions = []string{"Wait: the node has the taint " + corev1.TaintNodeOutOfService + ", so kube-controller-manager deletes its Pods and detaches their volumes.", untaint}
		return
	}
	f.Actions = []string{"Make sure that the machine of node " + node.Name + " is off: two nodes that write to the volume destroy its data. " +
		"Then taint the node: kube-controller-manager deletes its Pods and detaches their volumes.", untaint}
	f.Commands = v.commands([]string{"kubectl", "taint", "nodes", node.Name, corev1.TaintNodeOutOfService + "=nodeshutdown:NoExecute"})
}

// waitingPods returns the Pods with the volume that wait for their start on a node. Some drivers can do without the attach
// that they offer: so attachRequired counts as wrong only if a Pod waits.
func (v *volume) waitingPods() []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(items(v.pods)), func(p corev1.Pod) bool {
		return p.Status.Phase != corev1.PodPending || p.DeletionTimestamp != nil || p.Spec.NodeName == "" ||
			slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { // it waits for something else
				return c.State.Waiting == nil || c.State.Waiting.Reason != "ContainerCreating" && c.State.Waiting.Reason != "PodInitializing"
			})
	})
}

// requireAttach makes the CSIDriver again with attachRequired: true, since the API server lets nobody change the field.
// The kubelet decides for the life of a Pod whether its volumes are attached, so that the waiting Pods are made again too.
func (v *volume) requireAttach(f *diagnosis.Diagnosis) {
	change := diagnosis.Commands(
		[]string{"kubectl", "get", "csidriver", v.driver, "-o", "json"},
		[]string{"kubectl", "patch", "--local", "-f", "-", "--type=merge", "-p", `{"spec":{"attachRequired":true}}`, "-o", "json"},
		[]string{"kubectl", "replace", "--force", "-f", "-"})
	if change == nil {
		return
	}
	var lines [][]string
	for _, pod := range v.waitingPods() {
		if metav1.GetControllerOf(&pod) == nil {
			f.Actions = append(f.Actions, "Delete "+ref(Pod, pod.Namespace, pod.Name)+" and create it again: it has no controller that does.")
			continue
		}
		lines = append(lines, []string{"kubectl", "-n", pod.Namespace, "delete", "pod", pod.Name})
	}
	f.Commands = v.through(append([]string{strings.Join(change, " | ")}, diagnosis.Commands(lines...)...))
}

// freeLease takes the lease away from another attacher that is gone.
func (v *volume) freeLease(f *diagnosis.Diagnosis) {
	l := v.leaseRead.value
	if l == nil || l.Spec.RenewTime == nil || v.lease.Duration == 0 { // the hub sees another holder
		return
	}
	f.Detail = fmt.Sprintf("it expires in %s if it is not renewed", diagnosis.Length(v.lease.Renewed.Add(v.lease.Duration).Sub(v.now)))
	f.Actions = append(f.Actions, "The command changes nothing if the holder has renewed the lease in the meantime: then it lives.")
	type operation map[string]any
	patch, err := json.Marshal([]operation{ // its tests make it fail if the lease has changed
		{"op": "test", "path": "/spec/holderIdentity", "value": v.lease.Holder}, {"op": "test", "path": "/spec/renewTime", "value": l.Spec.RenewTime},
		{"op": "replace", "path": "/spec/holderIdentity", "value": ""}})
	if err == nil { // always: they are strings and a time
		f.Commands = v.commands([]string{"kubectl", "-n", l.Namespace, "patch", "lease", l.Name, "--type=json", "-p", string(patch)})
	}
}
