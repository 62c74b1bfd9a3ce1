package tests

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/internal/proxy"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// proxied puts a proxy with mutual TLS before a driver, and has the hub go through it.
func (w *world) proxied(driver string) {
	w.t.Helper()
	const serverName = "driver.storage.svc"
	proxyCA, hubCA := certtest.NewAuthority(w.t, "proxy CA"), certtest.NewAuthority(w.t, "hub CA")
	own := certtest.Write(w.t, w.t.TempDir(), hubCA, proxyCA.Issue(certtest.Request{Names: []string{serverName}}))
	d := w.drivers[driver]
	p, err := proxy.New(proxy.Options{Target: d.Endpoint.Address(), Files: tlsfiles.Files(own), AllowedSANs: []string{"hub"}})
	if err != nil {
		w.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Serve(ctx, listener) }()
	w.t.Cleanup(func() { stop(); <-ended })
	f := certtest.Write(w.t, w.t.TempDir(), proxyCA, hubCA.Issue(certtest.Request{Names: []string{"hub"}}))
	d.Endpoint = registry.Endpoint("tcp://" + listener.Addr().String())
	d.TLS = registry.TLS{CAFile: f.CA, CertFile: f.Cert, KeyFile: f.Key, ServerName: serverName}
	w.drivers[driver] = d
}

// The same test for a driver on its socket and for one behind a proxy: to the hub there
// is no difference.
func TestDriverThatGoesAndComesBackLosesNothingOnItsSocketAndBehindAProxy(t *testing.T) {
	for name, reach := range map[string]func(*world, string){
		"socket": func(*world, string) {},
		"proxy":  (*world).proxied,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			driver, backend := w.driver("d-"+name, fakecsi.Options{})
			reach(w, driver)
			w.goAndComeBack(driver, backend)
		})
	}
}

// goAndComeBack attaches and detaches, and has the driver crash in between.
func (w *world) goAndComeBack(driver string, backend *fakecsi.Backend) {
	w.t.Helper()
	node := w.node("n", driver)
	var first, second []testbed.Object
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		first = append(first, w.volume(name, driver, node))
		second = append(second, w.volume(name+"2", driver, node))
	}
	w.start()
	w.create(first...)
	w.waitAllAttached(len(first))

	w.servers[driver].Crash()
	w.create(second...)
	w.delete(first...)
	if err := w.servers[driver].Start(); err != nil {
		w.t.Fatal(err)
	}
	w.waitFor("the second half attached, the first gone", testbed.AllAttached(len(second)))
	w.checkBooks(map[string]int{driver: len(second)})
	w.delete(second...)
	w.waitNoneLeft()
	w.checkBooks(map[string]int{})
	if got := backend.Books().Methods[fakecsi.ControllerPublishVolume].Changed; got != 10 {
		w.t.Errorf("%d publishes changed something, want 10", got)
	}
}

// Whatever keeps a secured endpoint from being used is the reason of the driver's state,
// in words that say which side has to change what.
func TestStateOfADriverSaysWhatIsWrongWithItsTLS(t *testing.T) {
	driverCA, hubCA, otherCA := certtest.NewAuthority(t, "driver CA"), certtest.NewAuthority(t, "hub CA"), certtest.NewAuthority(t, "other CA")
	own := hubCA.Issue(certtest.Request{Names: []string{"hub"}})
	w := newWorld(t)
	backend, err := fakecsi.New(fakecsi.Options{Name: w.name("d")})
	if err != nil {
		t.Fatal(err)
	}
	server, err := fakecsi.NewServer(fakecsi.ServerOptions{Backend: backend, Endpoint: "tcp://127.0.0.1:0", TLS: &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: hubCA.Pool(),
		Certificates: []tls.Certificate{driverCA.Issue(certtest.Request{Names: []string{"driver.storage.svc"}}).TLS()}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Crash)
	updates, h := w.run()
	for _, test := range []struct {
		name       string
		authority  *certtest.Authority
		own        certtest.Pair
		serverName string
		want       string
	}{
		{"wrong CA", otherCA, own, "driver.storage.svc", "is signed by no CA in"},
		{"wrong server name", driverCA, own, "elsewhere.svc", "elsewhere.svc"},
		{"own certificate expired", driverCA, hubCA.Issue(certtest.Request{Names: []string{"hub"}, From: time.Now().Add(-2 * time.Hour), To: time.Now().Add(-time.Hour)}), "driver.storage.svc", "expired at"},
		{"own certificate not accepted", driverCA, otherCA.Issue(certtest.Request{Names: []string{"hub"}}), "driver.storage.svc", "does not know the CA"},
	} {
		f := certtest.Write(t, t.TempDir(), test.authority, test.own)
		updates <- registry.Snapshot{w.name("d"): {Name: w.name("d"), Endpoint: registry.Endpoint(server.Endpoint()), Settings: registry.DefaultSettings(),
			TLS: registry.TLS{CAFile: f.CA, CertFile: f.Cert, KeyFile: f.Key, ServerName: test.serverName}}}
		w.waitReason(h, w.name("d"), test.want)
	}
	for method, book := range backend.Books().Methods {
		if book.Begun > 0 {
			t.Errorf("%d calls of %s over a connection that was not trusted", book.Begun, method)
		}
	}
}

// waitReason waits until a driver's state has a reason with the words.
func (w *world) waitReason(h *hub.Hub, driver, words string) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		got, _ := shown(h, driver)
		if strings.Contains(got.Reason, words) {
			return
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("the driver is %+v, want a reason with %q", got, words)
		}
	}
}
