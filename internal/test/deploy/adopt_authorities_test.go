package deploy_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// The steps of adopt give the hub the authority of each driver by server-side apply, with a field manager for each
// driver.
func TestAuthoritiesOfDriversMergeAndLeaveEachOtherAlone(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	configMaps := testbed.Shared(t).Clientset().CoreV1().ConfigMaps("default")
	const name = "csi-attach-hub-driver-cas"
	t.Cleanup(func() { _ = configMaps.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) })
	// What `kubectl create configmap NAME --from-file=DRIVER.crt --dry-run=client -o yaml` prints.
	apply := func(manager, data string) {
		t.Helper()
		object := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  creationTimestamp: null\n  name: " + name + "\n" + data
		if _, err := configMaps.Patch(ctx, name, types.ApplyPatchType, []byte(object), metav1.PatchOptions{FieldManager: manager}); err != nil {
			t.Fatalf("%s: %v", manager, err)
		}
	}
	want := func(step string, want ...string) {
		t.Helper()
		got, err := configMaps.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if keys := slices.Sorted(maps.Keys(got.Data)); !slices.Equal(keys, want) {
			t.Errorf("%s: keys are %q, want %q", step, keys, want)
		}
	}
	apply("attach-hub-ebs-csi-aws-com", "data:\n  ebs.csi.aws.com.crt: one\n")
	apply("attach-hub-cinder-csi-openstack-org", "data:\n  cinder.csi.openstack.org.crt: two\n")
	want("two drivers", "cinder.csi.openstack.org.crt", "ebs.csi.aws.com.crt")
	apply("attach-hub-ebs-csi-aws-com", "data:\n  ebs.csi.aws.com.crt: renewed\n")
	want("the first again", "cinder.csi.openstack.org.crt", "ebs.csi.aws.com.crt")
	apply("attach-hub-ebs-csi-aws-com", "")
	want("the first removed", "cinder.csi.openstack.org.crt")
}
