package csiclient

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestConnectReadsWhoTheDriverIsAndWhatItCan(t *testing.T) {
	for _, tc := range []struct {
		name      string
		announced []fakecsi.Capability
		want      Capabilities
		asked     int // ControllerGetCapabilities calls
	}{
		{"nothing", []fakecsi.Capability{}, Capabilities{}, 0},
		{"a controller without anything", []fakecsi.Capability{fakecsi.ControllerService}, Capabilities{ControllerService: true}, 1},
		{"publish", []fakecsi.Capability{fakecsi.ControllerService, fakecsi.PublishUnpublishVolume}, Capabilities{ControllerService: true, PublishUnpublish: true}, 1},
		{"readonly", []fakecsi.Capability{fakecsi.ControllerService, fakecsi.PublishReadonly}, Capabilities{ControllerService: true, PublishReadonly: true}, 1},
		{"single node multi writer", []fakecsi.Capability{fakecsi.ControllerService, fakecsi.SingleNodeMultiWriter}, Capabilities{ControllerService: true, SingleNodeMultiWriter: true}, 1},
		{"a list without nodes", []fakecsi.Capability{fakecsi.ControllerService, fakecsi.ListVolumesRPC}, Capabilities{ControllerService: true}, 1},
		{"nodes without a list", []fakecsi.Capability{fakecsi.ControllerService, fakecsi.ListVolumesPublishedNodes}, Capabilities{ControllerService: true}, 1},
		{"a list with nodes", []fakecsi.Capability{fakecsi.ControllerService, fakecsi.ListVolumesRPC, fakecsi.ListVolumesPublishedNodes}, Capabilities{ControllerService: true, ListPublishedNodes: true}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := testContext(t)
			d := startDriver(t, fakecsi.Knobs{Capabilities: tc.announced})
			got := connect(ctx, t, d.endpoint).Info()
			if want := (Info{Name: driverName, Version: "1.2.3", Capabilities: tc.want}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if asked := d.Books().Methods[fakecsi.ControllerGetCapabilities].Begun; asked != tc.asked {
				t.Errorf("the controller was asked %d times, want %d", asked, tc.asked)
			}
		})
	}
}

func TestConnectRefusesAnotherDriver(t *testing.T) {
	ctx := testContext(t)
	d := startDriver(t, fakecsi.Knobs{Name: "other.csi.example.com"})
	_, err := Connect(ctx, at(d.endpoint), nil)
	mismatch, ok := errors.AsType[*NameError](err)
	if !ok || mismatch.Want != driverName || mismatch.Got != "other.csi.example.com" {
		t.Fatalf("got %v, want a NameError with both names", err)
	}
	for _, name := range []string{mismatch.Want, mismatch.Got} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not name %s", err, name)
		}
	}
}

func TestConnectSaysWhichQuestionFailed(t *testing.T) {
	if _, err := Connect(testContext(t), at(startDriver(t, fakecsi.Knobs{NotReady: new(true)}).endpoint), nil); !errors.Is(err, ErrNotReady) {
		t.Errorf("not ready: got %v", err)
	}
	for method, want := range map[fakecsi.Method]string{
		fakecsi.Probe:                     "probe driver",
		fakecsi.GetPluginInfo:             "get plugin info",
		fakecsi.GetPluginCapabilities:     "get plugin capabilities",
		fakecsi.ControllerGetCapabilities: "get controller capabilities",
	} {
		ctx := testContext(t)
		d := startDriver(t, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: method, Code: codes.Internal}}})
		_, err := Connect(ctx, at(d.endpoint), nil)
		if status.Code(err) != codes.Internal || !strings.HasPrefix(err.Error(), want+": ") {
			t.Errorf("%s: got %v, want %q before the status", method, err, want)
		}
	}
}

func TestWhyNobodyListensIsSaid(t *testing.T) {
	for name, ask := range map[string]func(ctx context.Context, e registry.Endpoint) error{
		"connect":   func(ctx context.Context, e registry.Endpoint) error { _, err := Connect(ctx, at(e), nil); return err },
		"discovery": func(ctx context.Context, e registry.Endpoint) error { _, err := AskName(ctx, e); return err },
	} {
		ctx := testContext(t)
		if err := ask(ctx, socket(t)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s, no socket: got %v", name, err)
		}
		d := startDriver(t, fakecsi.Knobs{})
		must(t, ask(ctx, d.endpoint))
		d.server.Crash()
		if err := ask(ctx, d.endpoint); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s, a socket that a driver left behind: got %v", name, err)
		}
	}
}

func TestConnectEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(testContext(t))
	endpoint := listen(t, func(net.Conn) { cancel() }) // nobody speaks
	if _, err := Connect(ctx, at(endpoint), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// listen gives each connection to a socket to greet, and closes it at the end of
// the test.
func listen(t *testing.T, greet func(net.Conn)) registry.Endpoint {
	t.Helper()
	endpoint := socket(t)
	listener, err := net.Listen(endpoint.Network(), endpoint.Address())
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			greet(conn)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return endpoint
}

func TestDiscoveryDoesNotRepeatWhatADriverAnswers(t *testing.T) {
	for _, code := range []codes.Code{codes.Internal, codes.Unauthenticated, codes.Unavailable, codes.DeadlineExceeded, 77} {
		d := startDriver(t, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.GetPluginInfo, Code: code, Message: "login with hunter22 failed"}}})
		if _, err := AskName(testContext(t), d.endpoint); err == nil || strings.Contains(err.Error(), "hunter22") || !strings.HasSuffix(err.Error(), code.String()) {
			t.Error(err)
		}
	}
}

func TestDiscoveryTakesNoLargeAnswer(t *testing.T) {
	name := field(1, []byte(strings.Repeat("n", maxAnswer))...)
	if got, err := AskName(testContext(t), rawServer(t, map[string][]byte{"GetPluginInfo": name})); err == nil {
		t.Errorf("got a name of %d bytes", len(got))
	}
	long := startDriver(t, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.GetPluginInfo, Code: codes.Unavailable, Message: strings.Repeat("n", maxHeaders)}}})
	if _, err := AskName(testContext(t), long.endpoint); err == nil || len(err.Error()) > MaxText {
		t.Errorf("got %.200v", err)
	}
}
