package status

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/certtest"
)

// secureServer is a server with TLS whose files are looked at on request.
type secureServer struct {
	url       string
	authority *certtest.Authority
	files     certtest.Files
	poll      chan time.Time
}

func startSecureServer(t *testing.T) *secureServer {
	t.Helper()
	s := &secureServer{authority: certtest.NewAuthority(t, "hub"), poll: make(chan time.Time)}
	s.files = certtest.Write(t, t.TempDir(), s.authority, s.authority.Issue(certtest.Request{Names: []string{"127.0.0.1"}}))
	h := newFakeHub()
	server, err := New(Options{Endpoint: "127.0.0.1:0", Source: h, Metrics: h.metrics, TLS: TLS{CertFile: s.files.Cert, KeyFile: s.files.Key}})
	if err != nil {
		t.Fatal(err)
	}
	server.poll = func() (<-chan time.Time, func()) { return s.poll, func() {} }
	if err := server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	s.url = "https://" + server.Addr().String()
	return s
}

// get asks for the root over a connection of its own and returns when the certificate
// that it was shown ends.
func (s *secureServer) get(t *testing.T) (notAfter time.Time, protocol string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.authority.Pool()}, ForceAttemptHTTP2: true}}
	defer c.CloseIdleConnections()
	response, err := c.Get(s.url + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("got %s", response.Status)
	}
	return response.TLS.PeerCertificates[0].NotAfter, response.Proto
}

// look has the files looked at twice, as often as it takes to believe them.
func (s *secureServer) look() {
	for range 3 { // the third is taken when the second is done
		s.poll <- time.Time{}
	}
}

func TestThePortIsSecuredByTheCertificateOfTheFiles(t *testing.T) {
	s := startSecureServer(t)
	if _, protocol := s.get(t); protocol != "HTTP/2.0" {
		t.Errorf("spoke %s", protocol)
	}
	if code, _, body := get(t, strings.Replace(s.url, "https:", "http:", 1)+"/livez"); code != http.StatusBadRequest {
		t.Errorf("without TLS: got %d %s", code, body)
	}
	old := &tls.Config{RootCAs: s.authority.Pool(), MaxVersion: tls.VersionTLS12}
	if conn, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), old); err == nil {
		conn.Close()
		t.Error("TLS 1.2 is spoken")
	}
}

func TestAReplacedCertificateIsShownToNewConnections(t *testing.T) {
	s := startSecureServer(t)
	before, _ := s.get(t)
	certtest.WriteFile(t, s.files.Key, []byte("half done"))
	s.look()
	if now, _ := s.get(t); !now.Equal(before) {
		t.Error("files that are not whole were taken")
	}
	certtest.Write(t, filepath.Dir(s.files.Cert), s.authority,
		s.authority.Issue(certtest.Request{Names: []string{"127.0.0.1"}, To: before.Add(time.Hour)}))
	s.look()
	if now, _ := s.get(t); !now.Equal(before.Add(time.Hour)) {
		t.Errorf("the certificate shown ends at %s, the new one at %s", now, before.Add(time.Hour))
	}
}

func TestAServerWithoutWholeFilesIsNotMade(t *testing.T) {
	h := newFakeHub()
	authority := certtest.NewAuthority(t, "hub")
	files := certtest.Write(t, t.TempDir(), authority, authority.Issue(certtest.Request{}))
	missing := filepath.Join(t.TempDir(), "tls.key")
	empty := filepath.Join(t.TempDir(), "empty.key")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		files TLS
		want  string
	}{
		"no key":                   {TLS{CertFile: files.Cert}, "go together"},
		"no certificate":           {TLS{KeyFile: files.Key}, "go together"},
		"a key that is not there":  {TLS{files.Cert, missing, false}, missing},
		"a key that is empty":      {TLS{files.Cert, empty, false}, empty},
		"a key as the certificate": {TLS{files.Key, files.Key, false}, files.Key},
	} {
		_, err := New(Options{Endpoint: ":0", Source: h, Metrics: h.metrics, TLS: tc.files})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tc.want)
		}
	}
}

func TestGuardStandsBeforeAllButTheProbesBehindACertificateThatWasMade(t *testing.T) {
	h := newFakeHub()
	refuse := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	}
	server, err := New(Options{Endpoint: "127.0.0.1:0", Source: h, Metrics: h.metrics, Guard: refuse, TLS: TLS{SelfSigned: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 200, "/healthz/leader-election": 200,
		"/": 403, "/metrics": 403, "/api/v1/drivers": 403, "/attachments": 403, "/debug/pprof/": 403, "/nothing": 403,
	} {
		response, err := client.Get("https://" + server.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
		}
	}
}
