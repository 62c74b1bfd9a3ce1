package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// lead has hubs that are started later compete for leases, under an identity.
func (w *world) lead(identity string) {
	w.t.Helper()
	w.options.LeaseNamespace = "default"
	w.leadWith(lease.Options{Identity: identity, Namespace: "default", Alone: true,
		Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second})
}

func (w *world) leadWith(o lease.Options) {
	w.t.Helper()
	o.Kube = w.options.Kube.(lease.Kube)
	leases, err := lease.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	// Until the hubs that use them have ended.
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	done := make(chan error)
	go func() { done <- leases.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the leases ended with %v", err)
		}
	})
	w.options.Leases, w.options.LeaseDuration = leases, o.Duration
}

// observing returns what the world serves, to be observed.
func (w *world) observing() registry.Snapshot {
	snapshot := maps.Clone(w.drivers)
	for name, d := range snapshot {
		d.Mode = registry.ModeObserve
		snapshot[name] = d
	}
	return snapshot
}

// shown returns what a hub shows of a driver, and whether it shows the driver.
func shown(h *hub.Hub, driver string) (status.Driver, bool) {
	all := h.Drivers()
	i := slices.IndexFunc(all, func(d status.Driver) bool { return d.Name == driver })
	if i < 0 {
		return status.Driver{}, false
	}
	return all[i], true
}

// waitShown waits until a hub shows a driver as it should be, and returns what it shows.
// It is to be asked: it tells no changes.
func (w *world) waitShown(h *hub.Hub, driver, what string, holds func(status.Driver) bool) status.Driver {
	w.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var last status.Driver
	for {
		for _, d := range h.Drivers() {
			if last = d; d.Name == driver && holds(d) {
				return d
			}
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("the driver was never shown %s: %+v, observed %+v", what, last, last.Observed)
		}
	}
}

func failedChecks(d status.Driver) (failed []string) {
	for _, c := range d.Checklist {
		if !c.OK {
			failed = append(failed, c.Name+": "+c.Text)
		}
	}
	return failed
}

func TestTwoHundredAttachmentsOfAnotherAttacherAreObservedAndAgreedOn(t *testing.T) {
	const n = 200
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.create(testbed.Secret{Name: "observed", Data: map[string]string{"password": "hush-hush"}})
	w.lead("attacher-0")
	w.start()

	x := w.tap() // of the second hub alone
	w.lead("observer-0")
	updates, observer := w.run()
	updates <- w.observing()
	w.waitShown(observer, driver, "observed", func(d status.Driver) bool { return d.Observed != nil && d.Up && d.Lease.Holder == "attacher-0" })

	nodes := []string{w.node("n0", driver), w.node("n1", driver), w.node("n2", driver)}
	var volumes, attachments []testbed.Object
	for i := range n {
		name := w.name(fmt.Sprintf("v%d", i))
		pv := testbed.PersistentVolume{Name: name, Driver: driver}
		if i%10 == 0 {
			pv.Secret = &corev1.SecretReference{Namespace: "default", Name: "observed"}
		}
		volumes = append(volumes, pv)
		attachments = append(attachments, testbed.VolumeAttachment{Name: name, Driver: driver, Node: nodes[i%3], PersistentVolume: name})
	}
	w.create(volumes...)
	w.create(attachments...)
	w.waitAllAttached(n)
	d := w.waitShown(observer, driver, "with all agreed on, and a holder that renews its lease", func(d status.Driver) bool { return d.Observed.Agreed == n && leaseCheck(d).OK })
	if o := d.Observed; o.WouldHaveFailed+o.Differs+o.Pending > 0 || len(o.Disagreements) > 0 {
		t.Errorf("observed %+v, want %d agreed on and nothing else", o, n)
	}
	if failed := failedChecks(d); len(failed) > 0 || len(d.Checklist) == 0 {
		t.Errorf("%d checks, these failed: %v", len(d.Checklist), failed)
	}
	if d.State != status.StateReady || d.Mode != "observe" || d.Lease.Mine {
		t.Errorf("shown as %+v", d)
	}

	w.delete(attachments...)
	w.waitNoneLeft()
	d = w.waitShown(observer, driver, "with all detaches agreed on", func(d status.Driver) bool { return d.Observed.Agreed == 2*n })
	if o := d.Observed; o.WouldHaveFailed+o.Differs+o.Pending > 0 {
		t.Errorf("observed %+v, want %d agreed on and nothing else", o, 2*n)
	}
	if said := x.heard(); len(said) > 0 {
		t.Errorf("the observer wrote or called %d times, the first is %s", len(said), said[0])
	}
	b := backend.Books()
	if p, u := b.Methods[fakecsi.ControllerPublishVolume].Begun, b.Methods[fakecsi.ControllerUnpublishVolume].Begun; p != n || u != n {
		t.Errorf("%d publishes and %d unpublishes, want %d of each", p, u, n)
	}
	w.checkBooks(map[string]int{driver: 0})
}

// impersonate gives hubs that are started later the rights of csi-attacher, with some of
// the secrets in the namespace default.
func (w *world) impersonate(secrets ...string) {
	w.t.Helper()
	client, name := w.plane.Clientset(), w.name("observer")
	read := []string{"get", "list", "watch"}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: secrets, Verbs: []string{"get"}},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"csinodes", "csidrivers", "volumeattachments"}, Verbs: read},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: read},
	}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}}
	if _, err := client.RbacV1().ClusterRoles().Create(w.ctx, role, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(w.ctx, binding, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	config := w.plane.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	limited, err := kubernetes.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.options.Kube = limited
}

func TestWhatTheHubCouldNotHaveDoneIsShownByReasonAndWithoutSecrets(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	secrets := []string{"known", "unreadable", "missing"}
	for _, name := range secrets {
		w.create(testbed.Secret{Name: w.name(name), Data: map[string]string{"password": "hush-hush-" + name}})
	}
	same, other, none := w.node("same", driver), w.node("other", driver), w.node("none", driver)
	var all []testbed.Object
	add := func(name, node, secret string) string {
		pv := testbed.PersistentVolume{Name: w.name(name), Driver: driver}
		if secret != "" {
			pv.Secret = &corev1.SecretReference{Namespace: "default", Name: w.name(secret)}
		}
		w.create(pv)
		all = append(all, testbed.VolumeAttachment{Name: pv.Name, Driver: driver, Node: node, PersistentVolume: pv.Name})
		return pv.Name
	}
	add("fine", same, "")
	add("fine-with-secret", same, "known")
	elsewhere, unnamed := add("elsewhere", other, ""), add("unnamed", none, "")
	add("unreadable", same, "unreadable")
	add("missing", same, "missing")
	stop := w.start()
	w.create(all...)
	w.waitAllAttached(len(all))
	stop()

	// What has changed since is not wrong for the other attacher: it has done its work.
	w.delete(testbed.CSINode{Node: other}, testbed.CSINode{Node: none}, testbed.Secret{Name: w.name("missing")})
	w.create(testbed.CSINode{Node: other, Drivers: map[string]string{driver: "id-elsewhere"}}, testbed.CSINode{Node: none, Drivers: map[string]string{"another.driver": "id"}})
	w.impersonate(w.name("known"), w.name("missing"))
	updates, observer := w.run()
	updates <- w.observing()
	d := w.waitShown(observer, driver, "with all judged", func(d status.Driver) bool {
		return d.Observed != nil && d.Observed.Agreed+d.Observed.WouldHaveFailed+d.Observed.Differs == len(all) &&
			strings.Contains(strings.Join(failedChecks(d), "; "), "secrets: ") // it is checked at times
	})
	found := map[string]status.Disagreement{}
	for _, x := range d.Observed.Disagreements {
		found[x.VolumeAttachment] = x
	}
	for _, want := range []struct {
		name      string
		agreement status.Agreement
		reason    string
	}{
		{elsewhere, status.Differs, `node ID is "id-other", the hub would have used "id-elsewhere"`},
		{unnamed, status.WouldHaveFailed, "none"},
	} {
		if got := found[want.name]; got.Agreement != want.agreement || !strings.Contains(got.Reason, want.reason) {
			t.Errorf("%s: %+v, want %s because of %q", want.name, got, want.agreement, want.reason)
		}
	}
	if len(found) != 2 || d.Observed.Agreed != 4 {
		t.Errorf("observed %+v, want 2 disagreements and 4 agreed on", d.Observed)
	}
	failed := strings.Join(failedChecks(d), "; ")
	for _, want := range []string{"node IDs: 1 of 3 nodes", "secrets: 2 of 3 cannot be read", "decisions: 4 agreed"} {
		if !strings.Contains(failed, want) {
			t.Errorf("failed checks are %q, want %q among them", failed, want)
		}
	}
	shown, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	log := w.logged()
	if strings.Contains(string(shown)+log, "hush-hush") {
		t.Error("a secret is shown or logged")
	}
	if !strings.Contains(log, `state="Ready" mode="observe"`) {
		t.Errorf("the log was not kept: %s", log)
	}
}
