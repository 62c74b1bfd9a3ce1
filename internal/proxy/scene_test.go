package proxy

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	driverName = "block.csi.example.com"
	serverName = "driver.storage.svc"
)

// scene is a driver on a socket with a proxy in front of it.
type scene struct {
	t       *testing.T
	ctx     context.Context // ends the test if it would hang
	backend *fakecsi.Backend
	driver  *fakecsi.Server
	proxyCA *certtest.Authority
	hubCA   *certtest.Authority
	files   certtest.Files // of the proxy
	options Options

	address string
	poll    chan time.Time // a look at the files
	stop    context.CancelFunc
	ended   chan struct{}
	log     *lockedBuffer
}

func newScene(t *testing.T, change func(*Options)) *scene {
	t.Helper()
	s := &scene{t: t, proxyCA: certtest.NewAuthority(t, "proxy CA"), hubCA: certtest.NewAuthority(t, "hub CA"),
		poll: make(chan time.Time), ended: make(chan struct{}), log: &lockedBuffer{}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	s.ctx = ctx
	socket := filepath.Join(shortDir(t), "csi.sock")
	var err error
	if s.backend, err = fakecsi.New(fakecsi.Options{Name: driverName}); err != nil {
		t.Fatal(err)
	}
	if s.driver, err = fakecsi.NewServer(fakecsi.ServerOptions{Backend: s.backend, Endpoint: "unix://" + socket}); err != nil {
		t.Fatal(err)
	}
	s.startDriver()
	t.Cleanup(s.driver.Crash)
	s.files = certtest.Write(t, t.TempDir(), s.hubCA, s.serverPair())
	s.options = Options{Target: socket, Files: tlsfiles.Files(s.files), AllowedSANs: []string{"hub"}, Grace: 10 * time.Second}
	if change != nil {
		change(&s.options)
	}
	s.start()
	return s
}

// shortDir is a folder with a path short enough for a unix socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (s *scene) serverPair() certtest.Pair {
	return s.proxyCA.Issue(certtest.Request{Names: []string{serverName}})
}

func (s *scene) startDriver() {
	s.t.Helper()
	if err := s.driver.Start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) start() {
	s.t.Helper()
	p, err := New(s.options)
	if err != nil {
		s.t.Fatal(err)
	}
	p.ticks = s.poll
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.address = listener.Addr().String()
	logger := ktesting.NewLogger(s.log, ktesting.NewConfig(ktesting.Verbosity(4)))
	ctx, stop := context.WithCancel(klog.NewContext(s.t.Context(), logger))
	s.stop = stop
	go func() {
		defer close(s.ended)
		p.Serve(ctx, listener)
	}()
	s.t.Cleanup(func() { stop(); <-s.ended })
}

// look lets the proxy take new files.
func (s *scene) look() {
	for range 3 {
		s.poll <- time.Time{}
	}
}

// another starts a second proxy of the same kind, in the log of which nothing was
// left out.
func (s *scene) another(t *testing.T) *scene {
	t.Helper()
	a := &scene{t: t, ctx: s.ctx, backend: s.backend, driver: s.driver, proxyCA: s.proxyCA, hubCA: s.hubCA, files: s.files,
		options: s.options, poll: make(chan time.Time), ended: make(chan struct{}), log: &lockedBuffer{}}
	a.start()
	return a
}

// client is the driver as the hub is told to reach it, with a certificate of its own.
func (s *scene) client(own certtest.Pair) registry.Driver {
	s.t.Helper()
	f := certtest.Write(s.t, s.t.TempDir(), s.proxyCA, own)
	return registry.Driver{Name: driverName, Endpoint: registry.Endpoint("tcp://" + s.address),
		TLS: registry.TLS{CAFile: f.CA, CertFile: f.Cert, KeyFile: f.Key, ServerName: serverName}}
}

func (s *scene) hub() registry.Driver {
	s.t.Helper()
	return s.client(s.hubCA.Issue(certtest.Request{Names: []string{"hub"}}))
}

func (s *scene) connect(d registry.Driver) *csiclient.Session {
	s.t.Helper()
	session, err := csiclient.Connect(s.ctx, d, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(session.Close)
	return session
}

// refused checks that a connection does not come about, and what the client and the
// log say; and that the driver was not called.
func (s *scene) refused(d registry.Driver, told, logged string) {
	s.t.Helper()
	before := s.calls()
	_, err := csiclient.Connect(s.ctx, d, nil)
	if err == nil || !strings.Contains(err.Error(), told) {
		s.t.Errorf("the client got %v, want %q", err, told)
	}
	s.logged(logged)
	if now := s.calls(); now != before {
		s.t.Errorf("%d calls reached the driver", now-before)
	}
}

// waitFor waits until a channel is closed.
func (s *scene) waitFor(closed <-chan struct{}) {
	s.t.Helper()
	select {
	case <-closed:
	case <-s.ctx.Done():
		s.t.Fatal("waited in vain")
	}
}

func (s *scene) logged(words string) {
	s.t.Helper()
	if err := s.log.wait(s.ctx, words); err != nil {
		s.t.Errorf("the log does not say %q:\n%s", words, s.log.String())
	}
}

func (s *scene) calls() int {
	calls := 0
	for _, m := range s.backend.Books().Methods {
		calls += m.Begun
	}
	return calls
}

func (s *scene) publish(session *csiclient.Session, volume string) error {
	_, err := session.ControllerPublishVolume(s.ctx, &csi.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: "n1",
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}})
	return err
}

// hangingPublish makes a call that waits in the driver until Knobs.ReleaseAll.
func (s *scene) hangingPublish(session *csiclient.Session) <-chan error {
	s.t.Helper()
	s.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
	ended := make(chan error, 1)
	go func() { ended <- s.publish(session, "hanging") }()
	if err := s.backend.Wait(s.ctx, func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 }); err != nil {
		s.t.Fatal(err)
	}
	return ended
}

func (s *scene) turn(k fakecsi.Knobs) {
	s.t.Helper()
	if err := s.backend.Set(k); err != nil {
		s.t.Fatal(err)
	}
}

// lockedBuffer is a log that can be waited for.
type lockedBuffer struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{} // closed by the next line
}

func (b *lockedBuffer) Helper() {}

// Log implements ktesting.TL.
func (b *lockedBuffer) Log(args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, arg := range args {
		if s, ok := arg.(string); ok {
			b.text.WriteString(s)
		}
	}
	b.text.WriteString("\n")
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *lockedBuffer) wait(ctx context.Context, words string) error {
	for {
		b.mu.Lock()
		found := strings.Contains(b.text.String(), words)
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
