package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// asCSIAttacher returns a kubeconfig with no more permissions than csi-attacher's own
// manifests give it.
func (s *scene) asCSIAttacher() (kubeconfig string) {
	s.t.Helper()
	user := s.prefix + "-csi-attacher"
	read, change := []string{"get", "list", "watch"}, []string{"get", "list", "watch", "patch"}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: change},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"csinodes"}, Verbs: read},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments"}, Verbs: change},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "watch", "list", "delete", "update", "create"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
	client := s.plane.Clientset().RbacV1()
	if _, err := client.ClusterRoles().Create(s.ctx, role, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := client.ClusterRoleBindings().Create(s.ctx, binding, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(s.plane.Kubeconfig())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	kubeconfig = filepath.Join(s.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		s.t.Fatal(err)
	}
	return kubeconfig
}

// startInPlace starts a hub in the place of a csi-attacher with the arguments of a
// manifest, in which $(ADDRESS) stands for the socket, and with its permissions.
func (s *scene) startInPlace(socket, args string) *testbed.Process {
	s.t.Helper()
	p, err := testbed.StartHub(s.ctx, testbed.HubOptions{
		Binary: s.binary("./cmd/csi-attach-hub"), Kubeconfig: s.asCSIAttacher(), LogPath: filepath.Join(s.dir, "hub.log"),
		Args: strings.Split(strings.ReplaceAll(args, "$(ADDRESS)", socket), " "),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	testbed.KillAtEnd(s.t, p)
	return p
}

// holder returns who has the lease that csi-attacher would have, "" if nobody.
func (s *scene) holder(driver string) string {
	s.t.Helper()
	l, err := s.plane.Clientset().CoordinationV1().Leases("default").Get(s.ctx, "external-attacher-leader-"+driver, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	if err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

const (
	ebsArgs = "--timeout=6m --csi-address=$(ADDRESS) --v=2 --default-fstype=ext4 --leader-election=true --kube-api-qps=20 --kube-api-burst=100 " +
		"--worker-threads=100 --retry-interval-max=30m"
	azureDiskArgs = "-v=2 -csi-address=$(ADDRESS) -timeout=1200s -worker-threads=1000 -kube-api-qps=200 -kube-api-burst=400"
)

func TestManifestsOfDriversWorkWithTheImageSwapped(t *testing.T) {
	for _, test := range []struct{ name, args string }{
		{"ebs", ebsArgs},
		{"azuredisk", azureDiskArgs},
		{"defaults", "--csi-address $(ADDRESS) --resync=10m"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScene(t, "in-place-"+test.name)
			socket := filepath.Join(s.dir, "csi.sock")
			hub := s.startInPlace(socket, test.args)
			logged(s, hub, "has not reported its name yet") // the driver's container starts later
			driver, backend := s.serve("d", socket)
			attachments := s.attachments(driver, 20)
			s.create(attachments...)
			s.waitFor("all attached", testbed.AllAttached(20))
			if holder := s.holder(driver); (holder != "") != strings.Contains(test.args, "--leader-election") {
				t.Errorf("the lease of the driver is held by %q", holder)
			}
			s.delete(attachments...)
			s.waitFor("none left", testbed.NoneLeft[*storagev1.VolumeAttachment])
			if b := backend.Books(); len(b.Attached) > 0 || b.ViolationCount > 0 || b.Methods[fakecsi.ControllerPublishVolume].Begun != 20 {
				t.Errorf("attached %v, violations %+v, publishes %+v", b.Attached, b.Violations, b.Methods[fakecsi.ControllerPublishVolume])
			}
			if err := hub.Signal(syscall.SIGHUP); err != nil { // there is nothing to be read again
				t.Fatal(err)
			}
			s.checkExit(hub)
			if holder := s.holder(driver); holder != "" {
				t.Errorf("the lease of the driver is still held by %q", holder)
			}
			log, err := os.ReadFile(hub.LogPath())
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(log), "--resync has no effect"); got != strings.Contains(test.args, "--resync") {
				t.Errorf("a warning of --resync: %v", got)
			}
		})
	}
}

func TestDriverOfAHubInPlaceOfItsSidecarComesBackAndIsServed(t *testing.T) {
	s := newScene(t, "in-place-again")
	driver, socket := s.prefix+"-d", filepath.Join(s.dir, "d")
	served := s.startDriver(driver, socket)
	hub := s.startInPlace(socket, "--csi-address=unix://$(ADDRESS)")
	attachments := s.attachments(driver, 20)
	s.create(attachments[:10]...)
	s.waitFor("the first ten attached", testbed.AllAttached(10))
	served.Server.Crash()
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	s.create(attachments[10:]...)
	if err := served.Server.Start(); err != nil {
		t.Fatal(err)
	}
	s.waitFor("all attached", testbed.AllAttached(20))
	if got := len(s.books(served.Backend).Attached); got != 20 {
		t.Errorf("%d volumes attached, want 20", got)
	}
	s.checkExit(hub)
}
