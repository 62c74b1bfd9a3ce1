package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const (
	// inParallel is how many requests this program has in flight. More are not faster on a small machine.
	inParallel = 32

	// As in deploy/install.yaml.
	hubNamespace = "csi-attach-hub"
	hubAccount   = "csi-attach-hub"
	flowSchemas  = "FlowSchema"
	// otherAccount is the ServiceAccount of all other competitors, in namespace default. It has the hub's rights, which suffice
	// for them, and no FlowSchema of its own, as that of a csi-attacher.
	otherAccount = "attacher"
)

// stage is the world of a case and its volumes, for one competitor at a time.
type stage struct {
	*testbed.World // nil if its start has failed
	options
	c       Case
	dir     string
	names   []string // of the drivers
	volumes []volume // to attach and detach
	warmUp  []volume // one of each driver, to attach before bench counts
	clock   clock
	running []*attacher      // in this turn
	tenant  *tenant          // nil: none
	manager *testbed.Process // kube-controller-manager; nil: none
}

// setStage starts everything but the competitors and makes all objects. The caller must close the
// stage, also after an error.
func setStage(ctx context.Context, o options, c Case) (s *stage, err error) {
	s = &stage{options: o, c: c}
	if s.dir, err = os.MkdirTemp("", "attach-hub-bench-"); err != nil {
		return s, fmt.Errorf("make folder: %w", err)
	}
	s.say("%s", c.About)
	w := testbed.WorldOptions{
		Dir: s.dir, Hub: o.hub, ControlPlane: testbed.ControlPlaneOptions{Unlimited: !c.fair, Log: o.progress},
		Latency: fakecsi.Latency{Base: latency}, OnAttachment: s.clock.observe,
	}
	for i := range c.Drivers {
		s.names = append(s.names, fmt.Sprintf("driver-%03d.bench.example.com", i))
		w.Drivers = append(w.Drivers, fakecsi.Options{Name: s.names[i], CountersOnly: !c.booked})
	}
	for i := range c.Nodes {
		w.Nodes = append(w.Nodes, fmt.Sprintf("node-%03d", i))
	}
	if s.World, err = testbed.StartWorld(ctx, w); err != nil {
		return s, err
	}
	s.volumes, s.warmUp = spread("pv", s.names, s.Nodes, c.Each), spread("warm", s.names, s.Nodes, 1)
	others := spread("other", s.names, s.Nodes, max(0, c.Volumes/c.Drivers-c.Each-1)) // which only fill caches
	if err := each(ctx, slices.Concat(s.volumes, s.warmUp, others), s.create); err != nil || !c.fair {
		return s, err
	}
	return s, s.makeAccounts(ctx)
}

// makeAccounts applies what deploy/install.yaml has for the hub's ServiceAccount, and makes that of the other competitors.
func (s *stage) makeAccounts(ctx context.Context) error {
	if err := s.Plane.ApplyInstallation(ctx, "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", flowSchemas); err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: otherAccount}
	_, account := s.client().CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	_, rights := s.client().RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: hubAccount},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: otherAccount}}}, metav1.CreateOptions{})
	return errors.Join(account, rights)
}

// kubeconfig returns the path of the kubeconfig of a competitor: that of its ServiceAccount if API Priority and Fairness is on, else
// one with all rights.
func (s *stage) kubeconfig(ctx context.Context, namespace, account string) (string, error) {
	if !s.c.fair {
		return s.Plane.Kubeconfig(), nil
	}
	path := s.file(account + ".kubeconfig")
	return path, s.Plane.WriteAccountKubeconfig(ctx, path, namespace, account)
}

func (s *stage) client() kubernetes.Interface { return s.Plane.Clientset() }

// say writes a line of progress.
func (s *stage) say(format string, args ...any) {
	fmt.Fprintf(s.progress, "%s  %s: %s\n", time.Now().Format(time.TimeOnly), s.c.Name, fmt.Sprintf(format, args...))
}

// file returns the path of a file of a competitor.
func (s *stage) file(name string) string {
	return filepath.Join(s.dir, strings.ReplaceAll(name, " ", "-"))
}

// close stops everything and removes the folder.
func (s *stage) close(ctx context.Context) error {
	var errs []error
	if s.tenant != nil {
		s.tenant.close()
	}
	if s.manager != nil {
		s.manager.Kill() // it does not handle SIGTERM, and keeps no state
	}
	if s.World != nil {
		errs = append(errs, s.Stop(ctx))
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// each calls do for each volume, many at once, in about their order.
func each(ctx context.Context, volumes []volume, do func(context.Context, volume) error) error {
	return testbed.Each(ctx, inParallel, volumes, do)
}

// pause blocks for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
