package tests

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// recreate deletes a PersistentVolume by force and creates it with other values.
func (v *virtual) recreate(pv testbed.PersistentVolume) {
	v.t.Helper()
	v.delete(testbed.PersistentVolume{Name: pv.Name})
	if v.hasVolume(pv.Name) {
		_, err := v.kube.CoreV1().PersistentVolumes().Patch(v.t.Context(), pv.Name, types.JSONPatchType,
			[]byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
		if err != nil {
			v.t.Fatal(err)
		}
	}
	v.create(pv)
}

// sidecarThenRecreated makes a VolumeAttachment of volume v that csi-attacher has attached to node n, and recreates
// the PersistentVolume with another handle. No hub runs yet.
func (v *virtual) sidecarThenRecreated() (name string) {
	v.t.Helper()
	v.register("n", "id-n")
	v.volume("v")
	name = fmt.Sprintf("csi-%x", sha256.Sum256([]byte("v"+virtualDriver+"n")))
	v.attachedBySidecar(name, "v", "id-n")
	v.pass(time.Minute)
	v.recreate(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: "new"})
	return name
}

// attachedWithSecret starts a hub and has it attach volume v to node n as id-n, with the secret "first". There is a
// secret "second" too.
func (v *virtual) attachedWithSecret() (stop func(), va testbed.VolumeAttachment) {
	v.t.Helper()
	v.create(testbed.Secret{Name: "first", Data: map[string]string{"key": "one"}}, testbed.Secret{Name: "second", Data: map[string]string{"key": "two"}})
	v.register("n", "id-n")
	v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: secretRef("first")})
	stop = v.start()
	va = v.attachment("v", "n")
	v.create(va)
	v.pass(time.Second)
	return stop, va
}

func secretRef(name string) *corev1.SecretReference {
	return &corev1.SecretReference{Namespace: "default", Name: name}
}

// The volume of a PersistentVolume that was recreated with another handle was detached, and what csi-attacher had
// attached stayed attached, with nobody told.
func TestDetachOfWhatASidecarAttachedSaysThatItsPersistentVolumeWasRecreated(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		name := v.sidecarThenRecreated()
		v.start()
		v.pass(time.Minute)
		v.delete(testbed.VolumeAttachment{Name: name})
		v.pass(time.Hour)
		va := v.get(name)
		if va == nil || va.Status.DetachError == nil || !strings.Contains(va.Status.DetachError.Message, attach.AnnotationVolumeHandle) {
			t.Fatalf("VolumeAttachment %+v, want a detachError that says what to do", va)
		}
		if n := v.backend.Books().Methods[fakecsi.ControllerUnpublishVolume].Begun; n > 0 {
			t.Errorf("%d calls to detach, want none", n)
		}
		v.annotate(name, attach.AnnotationVolumeHandle, "v")
		v.pass(2 * time.Minute)
		if va := v.get(name); va != nil || v.calls(fakecsi.ControllerUnpublishVolume, "v", "id-n") != 1 || v.calls(fakecsi.ControllerUnpublishVolume, "new", "id-n") != 0 {
			t.Errorf("VolumeAttachment %+v, calls %+v; want one call for the old volume, and none for the new one", va, v.backend.Books().Methods)
		}
	})
}

// The finalizer was removed as the error says; then the new volume was detached as one that was left attached.
func TestVolumeOfARecreatedPersistentVolumeIsLeftAloneWhenTheFinalizerOfTheOldOneIsRemoved(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		name := v.sidecarThenRecreated()
		v.start()
		v.delete(testbed.VolumeAttachment{Name: name})
		v.pass(time.Minute)
		v.stripFinalizers(name)
		v.pass(time.Hour)
		if n := v.backend.Books().Methods[fakecsi.ControllerUnpublishVolume].Begun; n > 0 || v.get(name) != nil || v.danglingCount() > 0 {
			t.Errorf("%d calls to detach, VolumeAttachment %+v, %d volumes said to be left attached; want none", n, v.get(name), v.danglingCount())
		}
	})
}

// The driver did not list the new volume on the node: the old one was detached from under its Pods, and the new one
// attached in its place.
func TestAttachedVolumeIsNotReplacedByThatOfARecreatedPersistentVolume(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.recreate(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: "new"})
		v.pass(time.Hour)
		books := v.backend.Books()
		if got := v.get(va.Name); !got.Status.Attached || got.Annotations[attach.AnnotationVolumeHandle] != "v" || !books.IsAttached("v", "id-n") || books.IsAttached("new", "id-n") {
			t.Errorf("annotations %v, attached %v; want the old volume only", got.Annotations, books.Attached)
		}
	})
}

// The secret of the PersistentVolume of today went with the call for the volume of yesterday.
func TestDetachIsNotSentTheSecretOfARecreatedPersistentVolume(t *testing.T) {
	for name, tc := range map[string]struct {
		handle  string // of the recreated PersistentVolume
		restart bool   // nobody remembers the publish
		want    string
	}{
		"another volume":                   {"new", false, "one"},
		"another volume, after a restart":  {"new", true, ""},
		"the same volume":                  {"v", false, "one"},
		"the same volume, after a restart": {"v", true, "two"},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				stop, va := v.attachedWithSecret()
				v.recreate(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: tc.handle, Secret: secretRef("second")})
				v.pass(time.Second)
				if tc.restart {
					stop()
					v.start()
					v.pass(time.Second)
				}
				v.delete(va)
				v.pass(time.Minute)
				request := v.backend.LastUnpublish("v")
				if got := request.GetSecrets()["key"]; v.get(va.Name) != nil || request == nil || got != tc.want {
					t.Errorf("secret of the detach %q, want %q; VolumeAttachment %+v", got, tc.want, v.get(va.Name))
				}
			})
		})
	}
}

// annotate writes an annotation to a VolumeAttachment, as people do.
func (v *virtual) annotate(name, key, value string) {
	v.t.Helper()
	patch := fmt.Sprintf(`[{"op":"add","path":"/metadata/annotations/%s","value":%q}]`, strings.ReplaceAll(key, "/", "~1"), value)
	if _, err := v.kube.StorageV1().VolumeAttachments().Patch(v.t.Context(), name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		v.t.Fatal(err)
	}
}

// Another process had begun to attach the old volume; its unpublish was sent the secret of the new one.
func TestPreviousVolumeIsNotSentTheSecretOfTheRecreatedPersistentVolume(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		va := v.attachment("v", "n")
		begun := va.Build()
		begun.Finalizers = []string{attach.Finalizer(virtualDriver)}
		begun.Annotations = map[string]string{attach.AnnotationNodeID: "id-n", attach.AnnotationVolumeHandle: "old"}
		if _, err := v.kube.StorageV1().VolumeAttachments().Create(v.t.Context(), begun, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		v.create(testbed.Secret{Name: "second", Data: map[string]string{"key": "two"}})
		v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: "new", Secret: secretRef("second")})
		v.start()
		v.pass(time.Minute)
		if request := v.backend.LastUnpublish("old"); request == nil || len(request.GetSecrets()) > 0 || !v.get(va.Name).Status.Attached {
			t.Errorf("unpublish of the old volume %v, attached %v; want one without a secret, and the new volume attached", request, v.get(va.Name).Status.Attached)
		}
	})
}
