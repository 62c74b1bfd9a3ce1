package explain_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

const hubDenied = `volumeattachments.storage.k8s.io "csi-1" is forbidden: User "system:serviceaccount:storage:hub" cannot patch resource "volumeattachments/status" in API group "storage.k8s.io" at the cluster scope`

// denied is a hub that runs as the ServiceAccount storage:hub, and an error about a right.
func denied(text string, tries int, account string) *world {
	w := newWorld()
	w.more = []metav1.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: hubSpace, Name: "hub-0", Labels: map[string]string{"app.kubernetes.io/name": "csi-attach-hub"}},
		Spec: corev1.PodSpec{ServiceAccountName: account}}}
	w.va.Status.AttachError = &storagev1.VolumeError{Message: text}
	w.seen.State, w.seen.Tries, w.seen.LastError = status.Failing, tries, text
	w.seen.LastCause, _ = diagnosis.Parse(text, "")
	return w
}

// Whoever may write the status of a VolumeAttachment chooses its text, and the hub repeats it until it has failed itself.
func TestTextInAStatusGrantsNobodyARight(t *testing.T) {
	forbiddenSecret := `read secret kube-system/root for the call: secrets "root" is forbidden: User "system:serviceaccount:storage:hub" cannot get resource "secrets" in API group "" in the namespace "kube-system"`
	for name, tt := range map[string]struct {
		w       *world
		verdict diagnosis.Verdict
		grants  bool
	}{
		"a try of the hub was denied":            {denied(hubDenied, 3, "hub"), diagnosis.RightMissing, true},
		"the status says that it was":            {denied(hubDenied, 0, "hub"), diagnosis.RightMissing, false},
		"another account was denied":             {denied(strings.Replace(hubDenied, "storage:hub", "evil:evil", 1), 3, "hub"), diagnosis.RightMissing, false},
		"the hub runs as another account":        {denied(hubDenied, 3, ""), diagnosis.RightMissing, false},
		"the status says that of another secret": {denied(forbiddenSecret, 0, "hub"), diagnosis.SecretForbidden, false},
	} {
		report, err := tt.w.asked(t, "csi-1")
		if err != nil {
			t.Fatal(err)
		}
		stop := report.Volumes[0].Stop
		if stop == nil || stop.Verdict != tt.verdict {
			t.Errorf("%s: got %+v, want %s", name, stop, tt.verdict)
		} else if grants := len(stop.Commands) > 0; grants != tt.grants || strings.Contains(stop.Next, "root") {
			t.Errorf("%s: got the commands %q, and to do: %s", name, stop.Commands, stop.Next)
		}
	}
}
