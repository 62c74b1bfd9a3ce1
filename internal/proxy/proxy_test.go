package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
)

func TestClientsComeBackWhenTheDriverDoes(t *testing.T) {
	s := newScene(t, nil)
	hub := s.hub()
	session := s.connect(hub)
	inFlight := s.hangingPublish(session)
	s.driver.Crash()
	s.waitFor(session.Ended().Done())
	if err := <-inFlight; status.Code(err) != codes.Unavailable {
		t.Errorf("the call in flight got %v", err)
	}
	s.logged("the driver has ended the connection")
	s.refused(hub, "code = Unavailable desc = proxy cannot open unix://"+s.options.Target+": ", "Cannot open the driver's socket")
	s.turn(fakecsi.Knobs{ReleaseAll: true})
	s.startDriver()
	if err := s.publish(s.connect(hub), "v"); err != nil {
		t.Error(err)
	}
}

func TestClientsThatAreNotToBeTrustedAreRefused(t *testing.T) {
	s := newScene(t, func(o *Options) { o.AllowedSANs = []string{"hub.example.com", "spiffe://cluster/hub"} })
	other := certtest.NewAuthority(t, "other CA")
	for _, test := range []struct {
		name string
		own  certtest.Pair
		told string
		log  string
	}{
		{"of another authority", other.Issue(certtest.Request{Names: []string{"hub.example.com"}}), "refuses the client certificate", "certificate signed by unknown authority"},
		{"expired", s.hubCA.Issue(certtest.Request{Names: []string{"hub.example.com"}, To: time.Now().Add(-time.Minute)}), "expired at", ""},
		{"of another name", s.hubCA.Issue(certtest.Request{Names: []string{"web", "10.0.0.1"}}), "refuses the client certificate", "is for [web] [] and for none of the allowed names [hub.example.com spiffe://cluster/hub]"},
		{"of another URI", s.hubCA.Issue(certtest.Request{URIs: []string{"spiffe://cluster/HUB"}}), "refuses the client certificate", ""},
		{"of no name", s.hubCA.Issue(certtest.Request{}), "refuses the client certificate", ""},
		{"of any name", s.hubCA.Issue(certtest.Request{Names: []string{"*.example.com"}}), "refuses the client certificate", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			again := s.another(t)
			again.refused(again.client(test.own), test.told, test.log)
		})
	}
	for _, r := range []certtest.Request{{Names: []string{"x", "HUB.example.com"}}, {URIs: []string{"spiffe://cluster/hub"}}} {
		s.connect(s.client(s.hubCA.Issue(r)))
	}
}

func TestClientWithoutACertificateOrHTTP2IsRefused(t *testing.T) {
	s := newScene(t, nil)
	own := s.hubCA.Issue(certtest.Request{}).TLS()
	for name, test := range map[string]struct {
		config *tls.Config
		log    string
	}{
		"no certificate": {&tls.Config{NextProtos: []string{"h2"}}, "client didn't provide a certificate"},
		"no HTTP/2":      {&tls.Config{Certificates: []tls.Certificate{own}}, "does not speak HTTP/2 over TLS"},
		"TLS 1.2":        {&tls.Config{Certificates: []tls.Certificate{own}, NextProtos: []string{"h2"}, MaxVersion: tls.VersionTLS12}, "unsupported versions"},
	} {
		t.Run(name, func(t *testing.T) {
			again := s.another(t)
			test.config.RootCAs, test.config.ServerName = s.proxyCA.Pool(), serverName
			conn, err := tls.Dial("tcp", again.address, test.config)
			if err == nil {
				_, err = conn.Read(make([]byte, 1))
				conn.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "remote error: tls:") {
				t.Errorf("the client got %v, want an alert", err)
			}
			again.logged(test.log)
		})
	}
	plain, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(plain); len(answer) > 7 {
		t.Errorf("plain text got %q, %v", answer, err)
	}
	s.logged("does not look like a TLS handshake")
	if s.calls() > 0 {
		t.Error("calls reached the driver")
	}
}

func TestReplacedCertificatesHoldForTheNextClient(t *testing.T) {
	s := newScene(t, nil)
	hub := s.hub()
	session := s.connect(hub)
	newCA, newHubCA := certtest.NewAuthority(t, "new CA"), certtest.NewAuthority(t, "new hub CA")
	next := newCA.Issue(certtest.Request{Names: []string{serverName}})
	certtest.WriteFile(t, s.files.Cert, next.CertPEM) // without its key
	s.look()
	s.connect(hub)
	s.logged("New TLS files rejected")
	certtest.Write(t, filepath.Dir(s.files.Cert), newHubCA, next)
	s.look()
	s.logged("Loaded new TLS files")
	s.refused(hub, "is signed by no CA in", "")
	s.proxyCA = newCA
	s.refused(s.hub(), "refuses the client certificate", "Refused a client in the TLS handshake")
	s.hubCA = newHubCA
	s.connect(s.hub())
	s.waitFor(session.Ended().Done())
	s.logged("its certificate is not accepted any more")
}

// A stolen certificate is taken out of use by another authority, at once: also for the calls in flight.
func TestClientWhoseAuthorityIsGoneIsCutOff(t *testing.T) {
	s := newScene(t, nil)
	session := s.connect(s.hub())
	inFlight := s.hangingPublish(session)
	newHubCA := certtest.NewAuthority(t, "new hub CA")
	certtest.WriteFile(t, s.files.CA, slices.Concat(s.hubCA.PEM, newHubCA.PEM))
	s.look()
	next := s.connect(s.client(newHubCA.Issue(certtest.Request{Names: []string{"hub"}})))
	select {
	case <-session.Ended().Done():
		t.Error("the client of an authority that stays was cut off")
	default:
	}
	certtest.WriteFile(t, s.files.CA, newHubCA.PEM)
	s.look()
	s.waitFor(session.Ended().Done())
	if err := <-inFlight; status.Code(err) != codes.Unavailable {
		t.Errorf("the call in flight got %v", err)
	}
	s.logged("its certificate is not accepted any more")
	s.turn(fakecsi.Knobs{ReleaseAll: true})
	if err := s.publish(next, "w"); err != nil {
		t.Errorf("the client of the new authority got %v", err)
	}
}

// TestClientWhoseAuthorityIsGoneIsCutOff shows what happens to its calls.
func TestClientIsCutOffWhenItsCertificateExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hubCA := certtest.NewAuthority(t, "hub CA")
		client := hubCA.Issue(certtest.Request{Names: []string{"hub"}, To: time.Now().Add(30 * time.Minute)}).TLS()
		files := certtest.Write(t, t.TempDir(), hubCA, hubCA.Issue(certtest.Request{Names: []string{serverName}}))
		p, err := New(Options{Files: tlsfiles.Files(files)})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		err = p.verify(t.Context(), []*x509.Certificate{client.Leaf})
		if took := time.Since(begun); took < 30*time.Minute || took > 31*time.Minute || !strings.Contains(err.Error(), "certificate has expired") {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

func TestDrainTakesNoClientAndLetsCallsEnd(t *testing.T) {
	s := newScene(t, func(o *Options) { o.Grace = time.Hour })
	hub := s.hub()
	session := s.connect(hub)
	inFlight := s.hangingPublish(session)
	s.stop()
	s.waitFor(session.Ended().Done()) // so that its owner begins no further call here
	if _, err := csiclient.Connect(s.ctx, hub, nil); err == nil {
		t.Error("a client was taken")
	}
	s.turn(fakecsi.Knobs{ReleaseAll: true})
	if err := <-inFlight; err != nil {
		t.Errorf("the call in flight got %v", err)
	}
	session.Close()
	s.waitFor(s.ended)
	s.logged(`because="the proxy stops" remaining=null`)
}

func TestDrainDoesNotWaitForClientsWithoutCalls(t *testing.T) {
	s := newScene(t, func(o *Options) { o.Grace = time.Hour })
	session := s.connect(s.hub())
	s.stop()
	s.waitFor(session.Ended().Done())
	s.waitFor(s.ended)
}

func TestDrainCutsWhatIsLeftAfterTheGrace(t *testing.T) {
	s := newScene(t, func(o *Options) { o.Grace = time.Millisecond })
	session := s.connect(s.hub())
	inFlight := s.hangingPublish(session)
	s.stop()
	s.waitFor(s.ended)
	if err := <-inFlight; status.Code(err) != codes.Unavailable {
		t.Errorf("the call in flight got %v", err)
	}
	s.logged(`because="the proxy stops" remaining="context deadline exceeded"`)
}

func TestConnectionsThatSayNothingKeepNoClientOut(t *testing.T) {
	s := newScene(t, nil)
	session := s.connect(s.hub())
	for range maxConnections + 5 {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if err := s.publish(session, "v"); err != nil {
		t.Error(err)
	}
	s.connect(s.hub())
}
