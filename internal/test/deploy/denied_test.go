package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// readSecret returns a read of a Secret of the test with the hub's token.
func (d *deployed) readSecret(name string) func() error {
	secrets := d.clientWith(d.token).CoreV1().Secrets("storage")
	return func() error {
		_, err := secrets.Get(d.ctx, name, metav1.GetOptions{})
		return err
	}
}

// Other rights that are missing are tried in virtual time.
func TestAVolumeIsNotAttachedWithoutTheRightOnItsSecret(t *testing.T) {
	d := deploy(t, "denied", "v")
	if err := d.client.RbacV1().Roles("storage").Delete(d.ctx, "csi-attach-hub-secrets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.applier.ctx = context.Background(); d.applier.apply(d.objects...) })
	read := d.readSecret("denied-v")
	poll(d.ctx, t, "the right is gone", func() bool { return apierrors.IsForbidden(read()) })
	name, endpoint, _ := d.driver("a")
	node := d.prefix + "-node"
	d.create(testbed.CSINode{Node: node, Drivers: map[string]string{name: "id"}})
	_, va := d.volume("v", name, node)
	d.create(va)
	d.start(name, endpoint)
	const right = "get secrets/denied-v in namespace storage"
	d.recorder.wait(d.ctx, t, "refused: "+right, func(_, refused map[string]bool) bool { return refused[right] })
	d.hub.Kill()
	if got, err := d.client.StorageV1().VolumeAttachments().Get(d.ctx, d.prefix+"-v", metav1.GetOptions{}); err != nil || got.Status.Attached {
		t.Errorf("attached, or not there: %v", err)
	}
	if used, refused := d.recorder.state(); !slices.Equal(refused, []string{right}) {
		t.Errorf("refused: %v, used: %v", refused, used)
	}
}

func TestALeaseThatDoesNotExistIsReportedWithWhatToDo(t *testing.T) {
	d := deploy(t, "absent", "v")
	name, endpoint, _ := d.driver("a")
	node, lease := d.prefix+"-node", registry.LeaseName(name)
	d.create(testbed.CSINode{Node: node, Drivers: map[string]string{name: "id"}})
	_, va := d.volume("v", name, node)
	d.create(va)
	d.run(name, endpoint)
	want := "lease storage/" + lease + " does not exist, and the hub may not create it; create the lease"
	poll(d.ctx, t, "the driver's reason: "+want, func() bool {
		open := d.address()
		var driver status.Driver
		return d.read(open+"/api/v1/drivers/"+name, &driver) && strings.Contains(driver.Reason, want)
	})
	if log := readFile(t, d.hub.LogPath()); bytes.Contains(log, []byte("right is missing")) {
		t.Errorf("want no missing right:\n%s", log)
	}
	object := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: lease}}
	if _, err := d.client.CoordinationV1().Leases("storage").Create(d.ctx, object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d.waitFor("attached", d.prefix+"-v", attached)
}

// SECURITY.md ends a hub that is taken over like this.
func TestTheEndOfTheServiceAccountEndsItsTokens(t *testing.T) {
	d := deploy(t, "ended", "v")
	read := d.readSecret("ended-v")
	if err := read(); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err := d.client.RbacV1().ClusterRoleBindings().Delete(d.ctx, "csi-attach-hub", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.applier.ctx = context.Background(); d.applier.apply(d.objects...) })
	if err := read(); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("SECURITY.md says that RoleBindings still grant Secrets: %v", err)
	}
	if err := d.client.CoreV1().ServiceAccounts("csi-attach-hub").Delete(d.ctx, "csi-attach-hub", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(d.ctx, t, "the token is refused", func() bool { return apierrors.IsUnauthorized(read()) })
	d.applier.apply(d.objects...)
	if err := read(); !apierrors.IsUnauthorized(err) {
		t.Errorf("a new ServiceAccount makes the old token valid again: %v", err)
	}
}

// read reads an answer of the hub's API, false if nobody listens.
func (d *deployed) read(url string, into any) bool {
	d.t.Helper()
	response, err := http.Get(url)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		d.t.Fatalf("%s: %v", url, err)
	}
	return true
}
