package fakecsi

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// shortDir is a folder with a path short enough for a unix socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// testContext ends a test that would hang.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func startServer(t *testing.T, b *Backend, endpoint string) *Server {
	t.Helper()
	s, err := NewServer(ServerOptions{Backend: b, Endpoint: endpoint})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Crash)
	return s
}

func dial(t *testing.T, endpoint string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(endpoint, "tcp://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestCrashCutsCallsInFlightAndKeepsWhatIsAttached(t *testing.T) {
	for _, endpoint := range []string{"unix://" + filepath.Join(shortDir(t), "csi.sock"), "tcp://127.0.0.1:0"} {
		t.Run(endpoint[:3], func(t *testing.T) {
			ctx := testContext(t)
			b := newBackend(t, Options{Name: "a.example.com"})
			s := startServer(t, b, endpoint)
			client := csi.NewControllerClient(dial(t, s.Endpoint()))
			if _, err := client.ControllerPublishVolume(ctx, publishRequest("v", "n1", rwo)); err != nil {
				t.Fatal(err)
			}
			turn(t, b, Knobs{Hang: []Hang{{Method: ControllerPublishVolume}}})
			failed := make(chan error, 1)
			go func() {
				_, err := client.ControllerPublishVolume(ctx, publishRequest("w", "n1", rwo))
				failed <- err
			}()
			waitFor(t, ctx, b, func(bk Books) bool { return bk.AttachInFlight.Now == 1 })
			s.Crash()
			if err := <-failed; status.Code(err) != codes.Unavailable {
				t.Errorf("the call in flight got %v", err)
			}
			waitFor(t, ctx, b, func(bk Books) bool { return bk.InFlight.Now == 0 })
			if socket, ok := strings.CutPrefix(endpoint, "unix://"); ok {
				if _, err := os.Lstat(socket); err != nil {
					t.Errorf("no socket is left over, as a crash leaves it: %v", err)
				}
			}

			turn(t, b, Knobs{ReleaseAll: true, Name: "b.example.com", Capabilities: []Capability{ControllerService}})
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			info, err := csi.NewIdentityClient(dial(t, s.Endpoint())).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
			if err != nil || info.GetName() != "b.example.com" {
				t.Errorf("after the restart the driver says %v, %v", info, err)
			}
			bk := b.Books()
			if !bk.IsAttached("v", "n1") || bk.IsAttached("w", "n1") {
				t.Errorf("attached: %v", bk.Attached)
			}
			if last := bk.CallsOf(ControllerPublishVolume, "w")[0]; !last.Abandoned {
				t.Errorf("the call that was cut is booked as %+v", last)
			}
		})
	}
}

func TestStopLetsCallsInFlightEnd(t *testing.T) {
	ctx := testContext(t)
	socket := filepath.Join(shortDir(t), "csi.sock")
	b := newBackend(t, Options{})
	hang := Hang{Method: ControllerPublishVolume}
	turn(t, b, Knobs{Hang: []Hang{hang}})
	s := startServer(t, b, "unix://"+socket)
	conn := dial(t, s.Endpoint())
	answered := make(chan error, 1)
	go func() {
		_, err := csi.NewControllerClient(conn).ControllerPublishVolume(ctx, publishRequest("v", "n1", rwo))
		answered <- err
	}()
	waitFor(t, ctx, b, func(bk Books) bool { return bk.AttachInFlight.Now == 1 })
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.Stop(ctx)
	}()
	// The server says goodbye to its clients as the first thing of a graceful stop.
	conn.WaitForStateChange(ctx, connectivity.Ready)
	turn(t, b, Knobs{Release: []Hang{hang}})
	<-stopped
	if err := <-answered; err != nil {
		t.Errorf("the call in flight got %v", err)
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestStopCutsCallsThatOutlastItsContext(t *testing.T) {
	ctx := testContext(t)
	b := newBackend(t, Options{})
	turn(t, b, Knobs{Hang: []Hang{{}}, FinishAbandoned: new(true)})
	s := startServer(t, b, "tcp://127.0.0.1:0")
	client := csi.NewControllerClient(dial(t, s.Endpoint()))
	answered := make(chan error, 1)
	go func() {
		_, err := client.ControllerPublishVolume(ctx, publishRequest("v", "n1", rwo))
		answered <- err
	}()
	waitFor(t, ctx, b, func(bk Books) bool { return bk.AttachInFlight.Now == 1 })
	done, cancel := context.WithCancel(ctx)
	cancel()
	s.Stop(done)
	if err := <-answered; status.Code(err) != codes.Unavailable {
		t.Errorf("the call in flight got %v", err)
	}
	turn(t, b, Knobs{ReleaseAll: true})
	waitFor(t, ctx, b, func(bk Books) bool { return bk.IsAttached("v", "n1") && bk.InFlight.Now == 0 })
}

func TestAWrongEndpointIsAnError(t *testing.T) {
	for _, bad := range []string{"unix://relative.sock", "nothing", "tcp://127.0.0.1", ""} {
		if _, err := Listen(bad); err == nil {
			t.Errorf("endpoint %q: no error", bad)
		}
	}
}

func TestServerServesTLS(t *testing.T) {
	ctx := testContext(t)
	certificates := httptest.NewTLSServer(nil) // has a certificate for example.com and knows who trusts it
	defer certificates.Close()
	s, err := NewServer(ServerOptions{
		Backend: newBackend(t, Options{}), Endpoint: "tcp://127.0.0.1:0",
		TLS: &tls.Config{Certificates: certificates.TLS.Certificates},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Crash)
	trust := certificates.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	conn, err := grpc.NewClient(strings.TrimPrefix(s.Endpoint(), "tcp://"),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: trust, ServerName: "example.com"})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := csi.NewIdentityClient(conn).Probe(ctx, &csi.ProbeRequest{}); err != nil {
		t.Errorf("with TLS: %v", err)
	}
	if _, err := csi.NewIdentityClient(dial(t, s.Endpoint())).Probe(ctx, &csi.ProbeRequest{}); err == nil {
		t.Error("it answers without TLS")
	}
}

func waitFor(t *testing.T, ctx context.Context, b *Backend, done func(Books) bool) {
	t.Helper()
	if err := b.Wait(ctx, done); err != nil {
		t.Fatal(err)
	}
}

// A process that is being started has copies of all descriptors until its exec: a driver that was
// started again at that moment found its endpoint in use.
func TestEndpointIsFreeAgainThoughACopyOfItsDescriptorIsLeft(t *testing.T) {
	for network, endpoint := range map[string]string{"unix": "unix://" + shortDir(t) + "/s", "tcp": "tcp://127.0.0.1:0"} {
		for how, end := range map[string]func(*Server){
			"crash": (*Server).Crash,
			"stop":  func(s *Server) { s.Stop(testContext(t)) },
		} {
			t.Run(network+" "+how, func(t *testing.T) {
				s, err := NewServer(ServerOptions{Backend: newBackend(t, Options{Name: "a.example.com"}), Endpoint: endpoint})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Start(); err != nil {
					t.Fatal(err)
				}
				lis, ok := s.running.listener.(interface{ File() (*os.File, error) })
				if !ok {
					t.Fatalf("%T has no descriptor", s.running.listener)
				}
				left, err := lis.File()
				if err != nil {
					t.Fatal(err)
				}
				defer left.Close()
				end(s)
				if err := s.Start(); err != nil {
					t.Error(err)
				}
				s.Crash()
			})
		}
	}
}
