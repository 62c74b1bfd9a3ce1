package preflight

import (
	"context"
	"crypto/x509"
	"errors"
	"flag"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

var update = flag.Bool("update", false, "write the golden file")

var asOf = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// answered is what a driver without a mistake answers.
func answered() endpointFacts {
	step := csiclient.Step{Tried: true}
	return endpointFacts{addresses: []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.7")}, Examination: csiclient.Examination{
		Connect: step, TLS: step, PluginInfo: step, Probe: step, Capabilities: step, Remote: "10.0.0.7:9443",
		Own: &x509.Certificate{NotAfter: asOf.Add(quarter)}, Server: &x509.Certificate{NotAfter: asOf.Add(quarter)},
		Info: csiclient.Info{Name: "d.example.com", Version: "1.2.3", Capabilities: csiclient.Capabilities{PublishUnpublish: true, ListPublishedNodes: true}}}}
}

func secured() registry.Driver {
	return registry.Driver{Name: "d.example.com", Endpoint: "tcp://attach-hub-d.storage.svc:9443", Settings: registry.Settings{Mode: registry.ModeObserve},
		TLS: registry.TLS{CAFile: "/tls/d.crt", CertFile: "/tls/tls.crt", KeyFile: "/tls/tls.key", ServerName: "attach-hub-d"}}
}

func heldLease(seconds int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "external-attacher-leader-d-example-com"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("csi-attacher-0"), LeaseDurationSeconds: &seconds,
		AcquireTime: &metav1.MicroTime{Time: asOf.Add(-time.Hour)}, RenewTime: &metav1.MicroTime{Time: asOf.Add(-2 * time.Second)}}}
}

func used() usage {
	return usage{attachments: 2, wanted: map[string]bool{"node-1": true, "node-2": true}, registered: map[string]bool{"node-1": true, "node-2": true, "node-3": true}}
}

func TestTextShowsTheWorstDriverFirstAndEscapesWhatDriversSay(t *testing.T) {
	at := rights.Lease{Namespace: "storage", Name: "external-attacher-leader-d-example-com"}
	held := accountFacts{leaseFacts: leaseFacts{lease: at, object: heldLease(15)}, elsewhere: true, secrets: 2}
	read := &cluster{drivers: map[string]*usage{}}
	decided := func(d registry.Driver, e endpointFacts, a accountFacts, u usage) Driver {
		read.drivers[d.Name] = &u
		return decide(d, e, a, read, asOf)
	}
	fine := decided(secured(), answered(), held, used())

	hostile := secured()
	hostile.Name, hostile.Mode = "hostile.example.com", registry.ModeActive
	says := answered()
	says.Probe.Err = errors.New("rpc error: code = Internal desc = \x1b[2J\u202eno\nsuch array")
	says.Info.Version = "\x1b]0;owned\a"
	says.Server = &x509.Certificate{NotAfter: asOf.Add(5 * 24 * time.Hour)}
	broken := decided(hostile, says, accountFacts{leaseFacts: leaseFacts{lease: at, object: heldLease(1)}, elsewhere: true,
		missing: []rights.Right{{Verb: "list", Group: "coordination.k8s.io", Resource: "leases", Namespace: "storage", Name: at.Name, Purpose: "hold the leases of drivers", Manifest: "deploy/components/leases", Optional: true}}}, usage{})

	away := registry.Driver{Name: "away.example.com", Endpoint: "unix:///csi/away/csi.sock", Settings: registry.Settings{Mode: registry.ModeActive}}
	gone := endpointFacts{Examination: csiclient.Examination{Connect: csiclient.Step{Tried: true, Err: errors.New("dial unix /csi/away/csi.sock: connect: no such file or directory")}}}
	lost := decided(away, gone, accountFacts{leaseFacts: leaseFacts{lease: rights.Lease{Namespace: "csi-attach-hub", Name: "l"}, mayCreate: true}}, usage{})

	r := newReport([]Check{ok("configuration", "no mistakes and no warnings")}, []Driver{fine, broken, lost}, []string{"Found at CSIDriver e and not served: e: \x1b[31mno"}, asOf)
	const file = "testdata/preflight.golden"
	if *update {
		if err := os.WriteFile(file, []byte(r.Text()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), r.Text()); diff != "" {
		t.Errorf("%s, run with -update if the new texts are right (-want +got):\n%s", file, diff)
	}
}

// results returns the results of checks by name.
func results(checks []Check) map[string]Result {
	all := map[string]Result{}
	for _, c := range checks {
		all[c.Name] = c.Result
	}
	return all
}

func TestChecksBehindOneThatFailedAreSkipped(t *testing.T) {
	step := func(change func(*endpointFacts)) map[string]Result {
		f := answered()
		change(&f)
		return results(endpointChecks(secured(), f, usage{}, asOf))
	}
	wrong := csiclient.Step{Tried: true, Err: errors.New("no")}
	for _, test := range []struct {
		name string
		got  map[string]Result
		want map[string]Result
	}{
		{"dns", step(func(f *endpointFacts) { f.lookupErr = &net.DNSError{IsNotFound: true} }),
			map[string]Result{"dns": Failed, "connect": Skipped, "certificate": Skipped, "name": Skipped, "probe": Skipped, "capabilities": Skipped}},
		{"certificate", step(func(f *endpointFacts) { f.TLS = wrong }),
			map[string]Result{"dns": OK, "connect": OK, "certificate": Failed, "name": Skipped, "probe": Skipped, "capabilities": Skipped}},
		{"name", step(func(f *endpointFacts) { f.PluginInfo = wrong }),
			map[string]Result{"dns": OK, "connect": OK, "certificate": OK, "name": Failed, "probe": Skipped, "capabilities": Skipped}},
		{"a driver that is not ready still says what it can do", step(func(f *endpointFacts) { f.Probe = wrong }),
			map[string]Result{"dns": OK, "connect": OK, "certificate": OK, "name": OK, "probe": Failed, "capabilities": OK}},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	socket := secured()
	socket.Endpoint, socket.TLS = "unix:///csi.sock", registry.TLS{}
	if got := slices.Sorted(maps.Keys(results(endpointChecks(socket, answered(), usage{}, asOf)))); !slices.Equal(got, []string{"capabilities", "connect", "name", "probe"}) {
		t.Errorf("a socket has neither DNS nor a certificate: %v", got)
	}
}

func TestDetailsThatDecideAResult(t *testing.T) {
	addresses := func(all ...string) endpointFacts {
		var f endpointFacts
		for _, a := range all {
			f.addresses = append(f.addresses, netip.MustParseAddr(a))
		}
		return f
	}
	plain := secured()
	plain.TLS = registry.TLS{}
	local := plain
	local.Endpoint = "tcp://127.0.0.1:1"
	own := answered()
	own.Own = &x509.Certificate{NotAfter: asOf.Add(soon - time.Second)}
	lease := func(object *coordinationv1.Lease, mayCreate bool, u usage) Check {
		return checkLease(secured(), leaseFacts{lease: rights.Lease{Namespace: "storage", Name: "l"}, object: object, mayCreate: mayCreate}, u, asOf)
	}
	nowhere := func(err error) Check {
		return checkLease(secured(), leaseFacts{lease: rights.Lease{Namespace: "nonexist", Name: "l"}, mayCreate: true, namespaceErr: err}, usage{}, asOf)
	}
	list := rights.Right{Verb: "list", Resource: "leases", Optional: true}
	for _, test := range []struct {
		name  string
		got   Check
		want  Result
		words string // in reason or action
	}{
		{"several backends", checkDNS(plain.Endpoint, addresses("10.0.0.1", "10.0.0.2")), Warning, "10.0.0.1, 10.0.0.2: several replicas"},
		{"two families", checkDNS(plain.Endpoint, addresses("10.0.0.1", "fd00::1")), OK, ""},
		{"an address", checkDNS(local.Endpoint, addresses("127.0.0.1")), OK, "has an address"},
		{"a cluster IP may have several Pods behind it", checkDNS(plain.Endpoint, addresses("10.0.0.1")), OK, "it must keep to one Pod: sessionAffinity: ClientIP"},
		{"no such name", checkDNS(plain.Endpoint, endpointFacts{lookupErr: &net.DNSError{IsNotFound: true, Err: "no such host"}}), Failed, "Check the Service and its namespace"},
		{"DNS does not answer", checkDNS(plain.Endpoint, endpointFacts{lookupErr: &net.DNSError{IsTimeout: true, Err: "i/o timeout"}}), Failed, "dns-outside-of-kube-system"},
		{"insecure", checkCertificate(plain, answered(), asOf), Warning, "plain text"},
		{"loopback", checkCertificate(local, answered(), asOf), OK, ""},
		{"own certificate ends soon", checkCertificate(secured(), own, asOf), Warning, "Renew the certificate in /tls/tls.crt"},
		{"lease that does not exist yet", lease(nil, true, usage{}), OK, "creates it"},
		{"namespace of the lease is missing", nowhere(apierrors.NewNotFound(corev1.Resource("namespaces"), "nonexist")), Failed, "Lease nonexist/l and its namespace do not exist"},
		{"namespace of the lease may not be read", nowhere(apierrors.NewForbidden(corev1.Resource("namespaces"), "nonexist", nil)), OK, "namespace nonexist may be missing too"},
		{"lease of a slow attacher", lease(heldLease(120), false, usage{}), OK, "waits for up to 2m0s"},
		{"lease of a quick attacher", lease(heldLease(15), false, usage{}), OK, "held by csi-attacher-0"},
		{"only optional rights are missing", checkRights([]rights.Right{list}, nil, ""), Warning, "without them"},
		{"a required right too", checkRights([]rights.Right{list, {Verb: "get", Resource: "leases"}}, nil, ""), Failed, "get leases"},
		{"more Secrets than are asked for", checkSecrets(accountFacts{secrets: 300, notAsked: 100}), Warning, "200 of 300 Secrets may be read; 100 were not checked"},
		{"nothing is attached", checkNodes(usage{registered: map[string]bool{"a": true}}), OK, "CSINodes with the driver: 1; it has no VolumeAttachment"},
		{"nobody has registered the driver", checkNodes(usage{}), Warning, "no CSINode"},
	} {
		if test.got.Result != test.want || !strings.Contains(test.got.Reason+test.got.Action, test.words) {
			t.Errorf("%s: got %+v, want %s and %q", test.name, test.got, test.want, test.words)
		}
	}
}

func TestASocketTellsItsNameAndCapabilities(t *testing.T) {
	d := testbed.DriverForTest(t, "d.example.com", filepath.Join(testbed.ShortTempDir(t), "s"))
	r := AskSocket(t.Context(), registry.Endpoint(d.Endpoint()))
	if r.ExitCode() != 0 || len(r.Drivers) != 1 || r.Drivers[0].Name != "d.example.com" || !slices.Contains(r.Drivers[0].Capabilities, csiclient.PublishUnpublish) || !strings.Contains(r.Text(), "the driver reports the name d.example.com") {
		t.Errorf("got %+v", r)
	}
	var called []fakecsi.Method
	for method, book := range d.Backend.Books().Methods {
		if book.Begun > 0 {
			called = append(called, method)
		}
	}
	slices.Sort(called)
	if want := []fakecsi.Method{fakecsi.ControllerGetCapabilities, fakecsi.GetPluginCapabilities, fakecsi.GetPluginInfo, fakecsi.Probe}; !slices.Equal(called, want) {
		t.Errorf("called %v, want %v", called, want)
	}
	if r := AskSocket(t.Context(), "unix:///nowhere"); r.ExitCode() != 1 || !strings.HasPrefix(r.Text(), "0 of 1 drivers ok, 1 failed") {
		t.Errorf("got %s", r.Text())
	}
}

// Endpoints are checked without an API server too, and a driver that hangs keeps nothing beyond the time limit.
func TestAnAPIServerAndADriverThatDoNotAnswerHideNoOtherDriver(t *testing.T) {
	dir := testbed.ShortTempDir(t)
	fine, hangs := testbed.DriverForTest(t, "fine", filepath.Join(dir, "f")), testbed.DriverForTest(t, "hangs", filepath.Join(dir, "h"))
	if err := hangs.Backend.Set(fakecsi.Knobs{Hang: []fakecsi.Hang{{}}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hangs.Backend.Set(fakecsi.Knobs{ReleaseAll: true}) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // the limit of the command: the driver that hangs was called, the other one has answered
		_ = hangs.Backend.Wait(ctx, func(b fakecsi.Books) bool { return b.Methods[fakecsi.GetPluginInfo].Begun > 0 })
		_ = fine.Backend.Wait(ctx, func(b fakecsi.Books) bool { return b.Methods[fakecsi.ControllerGetCapabilities].Ended > 0 })
		cancel()
	}()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	r := Run(ctx, Options{Kube: kube, Namespace: hub, Drivers: []registry.Driver{
		{Name: "fine", Endpoint: registry.Endpoint(fine.Endpoint())}, {Name: "hangs", Endpoint: registry.Endpoint(hangs.Endpoint())}}})
	if got := results(r.Hub); got["cluster"] != Failed || got["rights"] != Failed {
		t.Errorf("hub: %+v", r.Hub)
	}
	for _, d := range r.Drivers {
		got := results(d.Checks)
		if want := map[string]Result{"fine": OK, "hangs": Failed}[d.Name]; got["name"] != want || got["lease"] != Failed || got["secrets"] != Skipped || got["node IDs"] != Skipped {
			t.Errorf("%s: %+v", d.Name, d.Checks)
		}
	}
}

func TestNothingToCheckIsNeitherSuccessNorFailure(t *testing.T) {
	if code := newReport([]Check{failed("rights", "", "")}, nil, nil, asOf).ExitCode(); code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	if code := newReport(nil, []Driver{{Checks: []Check{warning("lease", "", ""), skipped("name", "x")}}}, nil, asOf).ExitCode(); code != 0 {
		t.Errorf("exit code %d for a warning, want 0", code)
	}
}

func TestADriverIsNotOKIfTheClusterCannotBeListed(t *testing.T) {
	d := secured()
	read := newCluster([]registry.Driver{d})
	read.err = errors.New("list persistentvolumes: forbidden")
	held := accountFacts{leaseFacts: leaseFacts{lease: rights.Lease{Namespace: "storage", Name: "l"}, object: heldLease(15)}, elsewhere: true}
	r := newReport([]Check{failed("cluster", "", "")}, []Driver{decide(d, answered(), held, read, asOf)}, nil, asOf)
	if want := "0 of 1 drivers ok, 1 with a warning; 1 not fully checked"; r.Drivers[0].Result != Warning || !strings.HasPrefix(r.Text(), want) {
		t.Errorf("got %s, want %s", r.Text(), want)
	}
}

func TestAllPagesOfAListAreRead(t *testing.T) {
	c := newCluster([]registry.Driver{{Name: "d"}})
	pages := map[string]*storagev1.VolumeAttachmentList{"": {ListMeta: metav1.ListMeta{Continue: "more"}}, "more": {}}
	for token, page := range pages {
		page.Items = []storagev1.VolumeAttachment{{Spec: storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: "node" + token}}, {Spec: storagev1.VolumeAttachmentSpec{Attacher: "other"}}}
	}
	deleted := storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: asOf}}, Spec: storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: "lost"}}
	pages["more"].Items = append(pages["more"].Items, deleted)
	err := eachPage(t.Context(), func(_ context.Context, o metav1.ListOptions) (*storagev1.VolumeAttachmentList, error) {
		if o.Limit != pageSize {
			t.Errorf("a page has the limit %d", o.Limit)
		}
		return pages[o.Continue], nil
	}, func(l *storagev1.VolumeAttachmentList) []storagev1.VolumeAttachment { return l.Items }, c.sawAttachment)
	if u := c.drivers["d"]; err != nil || u.attachments != 3 || !maps.Equal(u.wanted, map[string]bool{"node": true, "nodemore": true}) {
		t.Errorf("got %+v, %v, want three VolumeAttachments, and both nodes from which nothing is detached", u, err)
	}
}

func TestSecretsAreAskedForByNameUpToALimit(t *testing.T) {
	all := map[corev1.SecretReference]bool{}
	for i := range maxSecrets + 3 {
		all[corev1.SecretReference{Namespace: "n", Name: string(rune('a'+i%26)) + strings.Repeat("x", i/26)}] = true
	}
	var f accountFacts
	f.askSecrets(t.Context(), testbed.Shared(t).Clientset(), all) // the administrator may
	if f.secrets != maxSecrets+3 || f.notAsked != 3 || len(f.denied) > 0 || f.secretError != nil {
		t.Errorf("got %+v", f)
	}
}
