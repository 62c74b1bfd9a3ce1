package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// mayAttach are the rights that csi-attacher's own manifests give it.
var mayAttach = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get", "list", "watch", "patch"}},
	{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"csinodes"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments"}, Verbs: []string{"get", "list", "watch", "patch"}},
	{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments/status"}, Verbs: []string{"patch"}},
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "watch", "list", "delete", "update", "create"}},
}

// A hub with the arguments and the rights of a csi-attacher, whose driver comes later, goes and comes back.
func TestManifestsOfDriversWorkWithTheImageSwapped(t *testing.T) {
	for name, args := range map[string]string{
		"ebs": "--timeout=6m --csi-address=$(ADDRESS) --v=2 --default-fstype=ext4 --leader-election=true --kube-api-qps=20 --kube-api-burst=100 " +
			"--worker-threads=100 --retry-interval-max=30m",
		"azuredisk": "-v=2 -csi-address=$(ADDRESS) -timeout=1200s -worker-threads=1000 -kube-api-qps=200 -kube-api-burst=400",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, "in-place-"+name)
			driver := &testbed.Driver{Name: s.prefix + "-d", Socket: filepath.Join(s.Dir, s.prefix+"-d")}
			// World.StartHub would give it a drivers.yaml.
			hub, err := testbed.StartHub(s.ctx, testbed.HubOptions{Binary: s.binary, Kubeconfig: s.kubeconfigFor(s.prefix+"-csi-attacher", mayAttach),
				LogPath: filepath.Join(s.Dir, "hub.log"), Args: strings.Fields(strings.ReplaceAll(args, "$(ADDRESS)", driver.Socket))})
			s.must(err)
			testbed.KillAtEnd(t, hub)
			s.logged(hub, "has not reported its name yet", 1)
			served := s.serve("d")
			holder := func() string {
				l, err := s.Plane.Clientset().CoordinationV1().Leases("default").Get(s.ctx, registry.LeaseName(driver.Name), metav1.GetOptions{})
				if err != nil {
					return ""
				}
				return ptr.Deref(l.Spec.HolderIdentity, "")
			}
			attachments := s.attachments(driver.Name, 20)
			s.create(attachments[:10]...)
			s.waitFor("the first ten attached", testbed.AllAttached(10))
			if holder := holder(); (holder != "") != strings.Contains(args, "--leader-election") {
				t.Errorf("the lease of the driver is held by %q", holder)
			}
			served.Server.Crash()
			if err := os.Remove(driver.Socket); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			s.create(attachments[10:]...)
			s.must(served.Server.Start())
			s.waitFor("all attached", testbed.AllAttached(20))
			s.delete(attachments...)
			s.waitFor("none left", testbed.NoneLeft[*storagev1.VolumeAttachment])
			if b := served.Backend.Books(); b.Check() != nil || len(b.Attached) > 0 || b.Methods[fakecsi.ControllerPublishVolume].Changed != 20 {
				t.Errorf("attached %v, violations %+v, publishes %+v", b.Attached, b.Violations, b.Methods[fakecsi.ControllerPublishVolume])
			}
			s.must(hub.Signal(syscall.SIGHUP)) // there is nothing to be read again
			s.checkExit(hub)
			if holder := holder(); holder != "" {
				t.Errorf("the lease of the driver is still held by %q", holder)
			}
		})
	}
}
