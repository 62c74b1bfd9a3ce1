package explain_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// Whoever may write the status of a VolumeAttachment chooses its text, and the hub repeats it until it has failed itself.
func TestTextInAStatusLeadsToNoSecretOfOthers(t *testing.T) {
	const text = `read secret kube-system/root for the call: secrets "root" is forbidden: User "system:serviceaccount:storage:hub" cannot get resource "secrets" in API group "" in the namespace "kube-system"`
	w := newWorld()
	w.va.Status.AttachError = &storagev1.VolumeError{Message: text}
	w.seen.State, w.seen.LastError = status.Failing, text
	report, err := w.asked(t, "csi-1")
	if err != nil {
		t.Fatal(err)
	}
	if stop := report.Volumes[0].Stop; stop == nil || stop.Verdict != diagnosis.SecretForbidden || len(stop.Commands) > 0 || strings.Contains(stop.Next, "root") {
		t.Errorf("got %+v", stop)
	}
}

// Without them, a command would act on the cluster of the current context.
func TestCommandsReachTheClusterThatWasAsked(t *testing.T) {
	for _, tt := range []struct {
		access, want []string
	}{
		{nil, []string{"kubectl -n storage create secret generic login --from-env-file=FILE"}},
		{[]string{"--context=my prod", "--kubeconfig=/k"}, []string{"kubectl '--context=my prod' --kubeconfig=/k -n storage create secret generic login --from-env-file=FILE"}},
		{[]string{"--context=a\u202eb"}, nil},
	} {
		w := newWorld()
		w.access = tt.access
		w.pv.Spec.CSI.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: "storage", Name: "login"}
		report, err := w.asked(t, "csi-1")
		if err != nil {
			t.Fatal(err)
		}
		if stop := report.Volumes[0].Stop; stop == nil || stop.Verdict != diagnosis.SecretMissing || !slices.Equal(stop.Commands, tt.want) {
			t.Errorf("%q: got %+v, want %q", tt.access, stop, tt.want)
		}
	}
}
