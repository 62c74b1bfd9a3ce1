package explain

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// cured returns the commands and the verdict that a remedy finds for a text.
func cured(w *walk, verdict diagnosis.Verdict, text string) (string, diagnosis.Verdict) {
	f := found(verdict, "driver d", text, "")
	w.cure(&f)
	return strings.Join(f.Commands, "; "), f.Verdict
}

// The identity of a csi-attacher in the network of its node is the name of the node.
func TestHolderIsGoneOnlyIfNoPodCanBeIt(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name    string
		pod     corev1.Pod
		renewed time.Duration
		gone    bool
	}{
		{"its Pod", corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, time.Hour, false},
		{"its Pod has ended", corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}}, time.Hour, true},
		{"a Pod in the network of the node", corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true, NodeName: "node-1.example.com"}}, time.Hour, false},
		{"a Pod on the node", corev1.Pod{Spec: corev1.PodSpec{NodeName: "node-1"}}, time.Hour, true},
		{"no Pod, renewed lately", corev1.Pod{}, time.Second, false},
	} {
		lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "l"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("node-1"),
			LeaseDurationSeconds: ptr.To(int32(7200)), RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-tt.renewed)))}}
		v := &Volume{Driver: "d", Leases: Leases{All: Present(&[]coordinationv1.Lease{lease})}, Holders: Present(&[]corev1.Pod{tt.pod})}
		commands, verdict := cured(&walk{Facts: &Facts{Now: now}, Volume: v}, diagnosis.LeaseHeld, "held by another attacher (node-1)")
		if gone := verdict == diagnosis.LeaseHolderGone; gone != tt.gone || gone != (commands != "") {
			t.Errorf("%s: got %s, %q", tt.name, verdict, commands)
		}
	}
}
