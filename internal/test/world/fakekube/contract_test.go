package fakekube_test

import (
	"fmt"
	"os"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

func TestMain(m *testing.M) {
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// attachments is an API with what a test needs of it. Failures end the test.
type attachments struct {
	t    *testing.T
	kube kubernetes.Interface
	name string
}

func (a attachments) create(finalizers ...string) *storagev1.VolumeAttachment {
	a.t.Helper()
	va := testbed.VolumeAttachment{Name: a.name, Driver: "d.example.com", Node: "n", PersistentVolume: "v"}.Build()
	va.Finalizers = finalizers
	made, err := a.kube.StorageV1().VolumeAttachments().Create(a.t.Context(), va, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return made
}

func (a attachments) patch(body string, sub ...string) (*storagev1.VolumeAttachment, error) {
	return a.kube.StorageV1().VolumeAttachments().Patch(a.t.Context(), a.name, types.JSONPatchType, []byte(body), metav1.PatchOptions{}, sub...)
}

func (a attachments) get() (*storagev1.VolumeAttachment, error) {
	return a.kube.StorageV1().VolumeAttachments().Get(a.t.Context(), a.name, metav1.GetOptions{})
}

func (a attachments) delete() {
	a.t.Helper()
	if err := a.kube.StorageV1().VolumeAttachments().Delete(a.t.Context(), a.name, metav1.DeleteOptions{}); err != nil {
		a.t.Fatal(err)
	}
}

// What attachers depend on, asked of the real API server and of the one in memory.
func TestFakeAnswersAsTheAPIServerDoes(t *testing.T) {
	const attached = `[{"op":"add","path":"/status","value":{"attached":true}}]`
	for name, check := range map[string]func(*testing.T, attachments){
		"a patch whose test does not hold is invalid without a cause": func(t *testing.T, a attachments) {
			a.create()
			_, err := a.patch(`[{"op":"test","path":"/metadata/uid","value":"another"},{"op":"add","path":"/metadata/finalizers","value":["example.com/f"]}]`)
			status, ok := err.(apierrors.APIStatus)
			if !ok || !apierrors.IsInvalid(err) || status.Status().Details != nil && len(status.Status().Details.Causes) > 0 {
				t.Errorf("%#v", err)
			}
		},
		"a patch of what is not there is not found": func(t *testing.T, a attachments) {
			if _, err := a.patch(attached, "status"); !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		},
		"a status is written by its subresource alone": func(t *testing.T, a attachments) {
			a.create()
			va, err := a.patch(`[{"op":"add","path":"/status","value":{"attached":true}},{"op":"add","path":"/metadata/finalizers","value":["example.com/f"]}]`)
			if err != nil || va.Status.Attached || len(va.Finalizers) != 1 {
				t.Errorf("by the object: %+v, %v", va, err)
			}
			va, err = a.patch(`[{"op":"add","path":"/status","value":{"attached":true}},{"op":"remove","path":"/metadata/finalizers"}]`, "status")
			if err != nil || !va.Status.Attached || len(va.Finalizers) != 1 {
				t.Errorf("by the status: %+v, %v", va, err)
			}
		},
		"each change has a later resourceVersion, and none keeps it": func(t *testing.T, a attachments) {
			made := a.create()
			va, err := a.patch(attached, "status")
			if err != nil || va.ResourceVersion == made.ResourceVersion || va.UID != made.UID {
				t.Errorf("%+v after %+v, %v", va, made, err)
			}
		},
		"no empty list of finalizers is kept": func(t *testing.T, a attachments) {
			a.create("example.com/f")
			if _, err := a.patch(`[{"op":"remove","path":"/metadata/finalizers/0"}]`); err != nil {
				t.Fatal(err)
			}
			if _, err := a.patch(`[{"op":"test","path":"/metadata/finalizers","value":[]}]`); !apierrors.IsInvalid(err) {
				t.Errorf("a test of an empty list: %v, want it refused", err)
			}
		},
		"an update of what has changed is a conflict": func(t *testing.T, a attachments) {
			made := a.create()
			if _, err := a.patch(attached, "status"); err != nil {
				t.Fatal(err)
			}
			if _, err := a.kube.StorageV1().VolumeAttachments().Update(t.Context(), made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Error(err)
			}
		},
		"a deletion without finalizers ends it": func(t *testing.T, a attachments) {
			a.create()
			a.delete()
			if _, err := a.get(); !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		},
		"a finalizer holds a deletion, and its end shows the last state": func(t *testing.T, a attachments) {
			a.create("example.com/f")
			a.delete()
			if va, err := a.get(); err != nil || va.DeletionTimestamp == nil {
				t.Errorf("held: %+v, %v", va, err)
			}
			va, err := a.patch(`[{"op":"remove","path":"/metadata/finalizers/0"}]`)
			if err != nil || va.DeletionTimestamp == nil || len(va.Finalizers) > 0 {
				t.Errorf("at the end: %+v, %v", va, err)
			}
			if _, err := a.get(); !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for api, kube := range map[string]kubernetes.Interface{"real": testbed.Shared(t).Clientset(), "fake": fakekube.New().Client()} {
				t.Run(api, func(t *testing.T) {
					check(t, attachments{t, kube, "contract-" + fmt.Sprintf("%x", name)[:40]})
				})
			}
		})
	}
}
