package hub_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsproxy"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// proxied puts a proxy with mutual TLS before a driver, and has the hub go through it.
func (w *world) proxied(driver string) {
	w.t.Helper()
	const serverName = "driver.storage.svc"
	proxyCA, hubCA := certtest.NewAuthority(w.t, "proxy CA"), certtest.NewAuthority(w.t, "hub CA")
	own := certtest.Write(w.t, w.t.TempDir(), hubCA, proxyCA.Issue(certtest.Request{Names: []string{serverName}}))
	d := w.drivers[driver]
	proxy, err := tlsproxy.New(tlsproxy.Options{Target: d.Endpoint.Address(), Files: tlsfiles.Files(own), AllowedSANs: []string{"hub"},
		MaxConnections: 10, IdleTimeout: time.Hour, HandshakeTimeout: 10 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- proxy.Serve(ctx, listener) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Errorf("the proxy ended with %v", err)
		}
	})
	f := certtest.Write(w.t, w.t.TempDir(), proxyCA, hubCA.Issue(certtest.Request{Names: []string{"hub"}}))
	d.Endpoint = registry.Endpoint("tcp://" + listener.Addr().String())
	d.TLS = registry.TLS{CAFile: f.CA, CertFile: f.Cert, KeyFile: f.Key, ServerName: serverName}
	w.drivers[driver] = d
}

func TestProxyInFrontOfADriverPassesAttachAndDetach(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("far", fakecsi.Options{})
	w.proxied(driver)
	node := w.node("n", driver)
	var first, second []testbed.Object
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		first = append(first, w.volume(name, driver, node))
		second = append(second, w.volume(name+"2", driver, node))
	}
	w.start()
	w.create(first...)
	w.waitAllAttached(len(first))

	// The driver goes and comes back while there is work: the proxy stays.
	w.servers[driver].Crash()
	w.create(second...)
	w.delete(first...)
	if err := w.servers[driver].Start(); err != nil {
		t.Fatal(err)
	}
	w.waitFor("the second half attached, the first gone", testbed.AllAttached(len(second)))
	w.checkBooks(map[string]int{driver: len(second)})
	w.delete(second...)
	w.waitNoneLeft()
	w.checkBooks(map[string]int{})
	if got := backend.Books().Methods[fakecsi.ControllerPublishVolume].Changed; got != 10 {
		t.Errorf("%d publishes changed something, want 10", got)
	}
}
