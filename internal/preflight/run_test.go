package preflight

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// breakage is a driver with what is expected of it.
type breakage struct {
	driver registry.Driver
	failed string // the checks that fail, with commas
	warned string // the checks with a warning
	says   string // in the reason of the first of these
	does   string // in its action
}

// TestEachBreakageFailsItsCheckAndHidesNoOther checks drivers with one breakage each at once, one of them hanging.
func TestEachBreakageFailsItsCheckAndHidesNoOther(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	good := certtest.Request{Names: []string{serverName}, To: now.Add(quarter)}
	secured := func(name string, issuer *certtest.Authority, change func(*certtest.Request)) registry.Driver {
		r := good
		change(&r)
		return w.onTCP(name, issuer, r)
	}
	changed := func(d registry.Driver, change func(*registry.Driver)) registry.Driver {
		change(&d)
		return d
	}
	same := func(*certtest.Request) {}
	hang := fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.GetPluginInfo}}}
	cases := []breakage{
		{driver: w.onSocket("fine", fakecsi.Knobs{})},
		{driver: w.behindProxy("proxied")},
		{driver: secured("no-dns", w.driverCA, same), failed: "dns"},
		{driver: w.entry("no-socket", registry.Endpoint("unix://"+filepath.Join(w.dir, "none"))), failed: "connect", says: "no such file", does: "creates the socket"},
		{driver: secured("nobody-listens", w.driverCA, same), failed: "connect", says: "connection refused", does: "nothing listens"},
		{driver: secured("wrong-san", w.driverCA, func(r *certtest.Request) { r.Names = []string{"other.svc"} }), failed: "certificate", says: `is for other.svc and not for serverName "driver.storage.svc"`, does: "Set tls.serverName of the driver"},
		{driver: secured("expired", w.driverCA, func(r *certtest.Request) { r.To = now.Add(-time.Minute) }), failed: "certificate", says: "the certificate of the server has expired"},
		{driver: secured("wrong-ca", w.hubCA, same), failed: "certificate", says: "comes from no authority in " + w.tls.CAFile},
		{driver: secured("ends-soon", w.driverCA, func(r *certtest.Request) { r.To = now.Add(soon - time.Hour) }), warned: "certificate", says: "the server is " + serverName, does: "Renew the certificate of the server,"},
		{driver: changed(secured("no-files", w.driverCA, same), func(d *registry.Driver) { d.TLS.CAFile = "/nowhere/ca.crt" }), failed: "certificate", says: "there is no file /nowhere/ca.crt"},
		{driver: w.onSocket("other-name", fakecsi.Knobs{Name: "other.example.com"}), failed: "name", says: `reports the name "other.example.com", not "other-name"`},
		{driver: w.onSocket("hangs", hang), failed: "name", says: "DeadlineExceeded", does: "in time"},
		{driver: w.onSocket("not-ready", fakecsi.Knobs{NotReady: new(true)}), failed: "probe", says: "not ready", does: "log of the driver's controller"},
		{driver: w.onSocket("node-plugin", fakecsi.Knobs{Capabilities: []fakecsi.Capability{}}), failed: "capabilities", says: "1 VolumeAttachment", does: "socket of the driver's controller"},
		{driver: w.onSocket("no-capability", fakecsi.Knobs{Capabilities: []fakecsi.Capability{}}), warned: "capabilities", says: "no PUBLISH_UNPUBLISH_VOLUME", does: "node plugin"},
		{driver: w.onSocket("no-attach", fakecsi.Knobs{}), warned: "capabilities", says: "attachRequired"},
		{driver: w.onSocket("lease-missing", fakecsi.Knobs{}), failed: "lease", says: "the hub may not create it", does: "Create the lease"},
		{driver: w.onSocket("lease-expired", fakecsi.Knobs{}), warned: "lease", says: "last held by " + holder, does: "csi-attacher"},
		{driver: w.onSocket("lease-free", fakecsi.Knobs{}), warned: "lease", says: "has no holder"},
		{driver: changed(w.onSocket("lease-here", fakecsi.Knobs{}), func(d *registry.Driver) { d.Lease.Namespace = "" }), warned: "lease", says: "the driver has VolumeAttachments", does: "Set lease.namespace"},
		{driver: w.onSocket("lease-forbidden", fakecsi.Knobs{}), failed: "lease,rights", says: "namespace " + elsewhere + " may be missing too", does: "deploy/components/leases"},
		{driver: changed(w.onSocket("no-namespace", fakecsi.Knobs{}), func(d *registry.Driver) { d.Lease.Namespace = "preflight-nonexist" }), failed: "lease,rights", says: "namespace preflight-nonexist may be missing too", does: "deploy/components/leases"},
		{driver: w.onSocket("secret-denied", fakecsi.Knobs{}), failed: "secrets", says: "1 of 2 Secrets may not be read, for example " + elsewhere + "/" + notGrantedSecret, does: "get on secret " + elsewhere + "/" + notGrantedSecret},
		{driver: w.onSocket("no-node-id", fakecsi.Knobs{}), failed: "node IDs", says: "1 of 2 nodes with VolumeAttachments have no node ID", does: nodeTwo},
	}
	for i := range cases {
		d := &cases[i].driver
		switch d.Name {
		case "no-dns":
			d.Endpoint = "tcp://nowhere.preflight.invalid:9443"
		case "nobody-listens":
			address, err := testbed.FreeAddress(w.ctx)
			if err != nil {
				t.Fatal(err)
			}
			d.Endpoint = registry.Endpoint("tcp://" + address)
		}
		switch d.Name {
		case "lease-missing":
			w.grantLease(d.LeaseOf().Name)
		case "lease-forbidden", "lease-here", "no-namespace":
		case "lease-free":
			w.lease(*d, "", now)
		case "lease-expired":
			w.lease(*d, holder, now.Add(-time.Hour))
		default:
			w.lease(*d, holder, now.Add(time.Hour)) // no test lasts so long
		}
	}
	w.objects(cases)

	var drivers []registry.Driver
	for _, c := range cases {
		drivers = append(drivers, c.driver)
	}
	r := Run(w.ctx, Options{Kube: w.kube(), Drivers: drivers, Namespace: hub})
	if worst(r.Hub) != OK || len(r.Hub) != 3 {
		t.Errorf("the hub has its rights, got %+v", r.Hub)
	}
	if len(r.Drivers) != len(cases) || r.Result != Failed || r.ExitCode() != 1 {
		t.Errorf("%d drivers, result %s, exit code %d", len(r.Drivers), r.Result, r.ExitCode())
	}
	for _, c := range cases {
		c.check(t, r)
	}
	// Who may read namespaces is told that this one is missing.
	i := slices.IndexFunc(drivers, func(d registry.Driver) bool { return d.Name == "no-namespace" })
	known := breakage{driver: drivers[i], failed: "lease", says: "and its namespace do not exist", does: "Correct lease.namespace"}
	known.check(t, Run(w.ctx, Options{Kube: w.admin, Drivers: drivers[i : i+1], Namespace: hub}))
}

// objects makes VolumeAttachments of each driver on a node with its node ID, and what the breakages need.
func (w *world) objects(cases []breakage) {
	w.t.Helper()
	cluster := testbed.NewCluster(w.admin)
	node, two := testbed.CSINode{Node: nodeName, Drivers: map[string]string{}}, testbed.CSINode{Node: nodeTwo, Drivers: map[string]string{"fine": "id-2"}}
	all := []testbed.Object{testbed.CSIDriver{Name: "no-attach", NoAttach: true}, testbed.VolumeAttachment{Name: "no-node-id-2", Driver: "no-node-id", Node: nodeTwo, PersistentVolume: "pv"}}
	for _, c := range cases {
		name := c.driver.Name
		node.Drivers[name] = "id-1"
		secret := &corev1.SecretReference{Namespace: elsewhere, Name: grantedSecret}
		all = append(all, testbed.PersistentVolume{Name: name, Driver: name, Secret: secret}, testbed.VolumeAttachment{Name: name, Driver: name, Node: nodeName, PersistentVolume: name})
	}
	denied := testbed.PersistentVolume{Name: "denied", Driver: "secret-denied", Secret: &corev1.SecretReference{Namespace: elsewhere, Name: notGrantedSecret}}
	all = append(all, node, two, testbed.VolumeAttachment{Name: "denied", Driver: "secret-denied", Node: nodeName, Inline: denied.Inline()})
	if err := cluster.Create(w.ctx, all...); err != nil {
		w.t.Fatal(err)
	}
	va, err := w.admin.StorageV1().VolumeAttachments().Get(w.ctx, "node-plugin", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	va.Annotations = map[string]string{attach.AnnotationNodeID: "id-1"} // an attacher has called the driver
	if _, err := w.admin.StorageV1().VolumeAttachments().Update(w.ctx, va, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (c breakage) check(t *testing.T, r Report) {
	t.Helper()
	i := slices.IndexFunc(r.Drivers, func(d Driver) bool { return d.Name == c.driver.Name })
	if i < 0 {
		t.Errorf("%s is missing", c.driver.Name)
		return
	}
	d := r.Drivers[i]
	var failed, warned, known []string
	var first Check
	for _, check := range d.Checks {
		known = append(known, fmt.Sprintf("%+v", check))
		switch check.Result {
		case Failed:
			failed = append(failed, check.Name)
		case Warning:
			warned = append(warned, check.Name)
		default:
			continue
		}
		if first.Name == "" {
			first = check
		}
		if check.Action == "" {
			t.Errorf("%s: %s does not say what to do", d.Name, check.Name)
		}
	}
	if strings.Join(failed, ",") != c.failed || strings.Join(warned, ",") != c.warned || !strings.Contains(first.Reason, c.says) || !strings.Contains(first.Action, c.does) {
		t.Errorf("%s: failed %v, warnings %v, want %q, %q, %q and %q:\n%s", d.Name, failed, warned, c.failed, c.warned, c.says, c.does, strings.Join(known, "\n"))
	}
	if want := cmp.Or(map[bool]Result{c.failed != "": Failed}[true], map[bool]Result{c.warned != "": Warning}[true], OK); d.Result != want {
		t.Errorf("%s: the result is %s, want %s", d.Name, d.Result, want)
	}
}
