package testbed

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestMain(m *testing.M) {
	if helper := os.Getenv(helperEnv); helper != "" {
		os.Exit(runHelper(helper))
	}
	os.Exit(RunMain(m, ControlPlaneOptions{}))
}

// testTimeout is a bound for things that take seconds, on a busy machine.
const testTimeout = 10 * time.Minute

func needsControlPlane(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	t.Cleanup(cancel)
	return ctx
}

func TestRealControllersAttachAndDetachForAPod(t *testing.T) {
	ctx := needsControlPlane(t)
	plane := Shared(t)
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	manager, err := plane.StartControllerManager(ctx, filepath.Join(t.TempDir(), "log"), QuickManager...)
	if err != nil {
		t.Fatal(err)
	}
	KillAtEnd(t, manager)
	client := plane.Clientset()
	cluster := NewCluster(client)
	attachments, err := WatchVolumeAttachments(ctx, client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer attachments.Close()
	nodes, err := WatchNodes(ctx, client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer nodes.Close()

	const driver = "test.csi.example.com"
	pod := Pod{Name: "pod-1", Node: "node-1", Claims: []string{"claim-1"}}
	if err := cluster.Create(ctx,
		Node{Name: "node-1"},
		CSINode{Node: "node-1", Drivers: map[string]string{driver: "id-of-node-1"}},
		CSIDriver{Name: driver},
		PersistentVolume{Name: "volume-1", Driver: driver, Handle: "handle-1", Claim: "claim-1"},
	); err != nil {
		t.Fatal(err)
	}
	if err := cluster.BindClaim(ctx, PersistentVolumeClaim{Name: "claim-1", PersistentVolume: "volume-1"}); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}

	var va *storagev1.VolumeAttachment
	waitFor := func(what string, holds func(own []*storagev1.VolumeAttachment) bool) error {
		return attachments.WaitFor(ctx, what, func(all []*storagev1.VolumeAttachment) bool { return holds(ofDriver(all, driver)) })
	}
	if err := waitFor("the VolumeAttachment of the pod", func(own []*storagev1.VolumeAttachment) bool {
		if len(own) == 1 {
			va = own[0]
		}
		return len(own) == 1
	}); err != nil {
		t.Fatal(err)
	}
	if va.Spec.Attacher != driver || va.Spec.NodeName != "node-1" || *va.Spec.Source.PersistentVolumeName != "volume-1" {
		t.Errorf("the VolumeAttachment is for %+v", va.Spec)
	}

	attached := []byte(`{"status":{"attached":true}}`)
	if _, err := client.StorageV1().VolumeAttachments().Patch(ctx, va.Name, types.MergePatchType, attached, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if err := waitFor("attached", AllAttached(1)); err != nil {
		t.Fatal(err)
	}
	if err := nodes.WaitFor(ctx, "status.volumesAttached of the node", func(all []*corev1.Node) bool {
		return VolumesAttached(all) == 1
	}); err != nil {
		t.Fatal(err)
	}

	if err := cluster.Delete(ctx, pod); err != nil {
		t.Fatal(err)
	}
	if err := waitFor("the end of the VolumeAttachment", NoneLeft); err != nil {
		t.Fatal(err)
	}
	if err := nodes.WaitFor(ctx, "an empty status.volumesAttached", func(all []*corev1.Node) bool {
		return VolumesAttached(all) == 0
	}); err != nil {
		t.Fatal(err)
	}
}

func TestRequestsCountsWhatClientsDid(t *testing.T) {
	ctx := needsControlPlane(t)
	plane := Shared(t)
	before, err := plane.Requests(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cluster := NewCluster(plane.Clientset())
	secrets := makeObjects(5, func(i int) Object { return Secret{Name: "counted-" + string(rune('a'+i))} })
	if err := cluster.Create(ctx, secrets...); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Create(ctx, secrets[0]); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("second create of the same secret: %v", err)
	}
	// Not the last request, which may not be counted yet when its answer is here.
	if err := cluster.Delete(ctx, secrets...); err != nil {
		t.Fatal(err)
	}
	after, err := plane.Requests(ctx)
	if err != nil {
		t.Fatal(err)
	}
	created := RequestKey{Verb: "POST", Resource: "secrets", Code: "201"}
	conflict := RequestKey{Verb: "POST", Resource: "secrets", Code: "409"}
	if diff := after.Since(before); diff[created] != 5 || diff[conflict] != 1 {
		t.Errorf("counted %d created and %d conflicts, want 5 and 1", diff[created], diff[conflict])
	}
}

func ofDriver(all []*storagev1.VolumeAttachment, driver string) []*storagev1.VolumeAttachment {
	return slices.DeleteFunc(slices.Clone(all), func(va *storagev1.VolumeAttachment) bool { return va.Spec.Attacher != driver })
}
