package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// startTimeout bounds the start of a control plane in tests, with a first
// build on a slow machine.
const startTimeout = 15 * time.Minute

// shared is the control plane of this test process.
var shared struct {
	sync.Mutex
	opts  ControlPlaneOptions
	plane *ControlPlane
	err   error
}

// RunMain runs the tests of a package that share one control plane, and
// returns the exit code for TestMain. The control plane is started by the
// first test that asks for it with Shared, so a run without such a test stays
// quick, and stopped at the end. What SharedBinary has built is removed.
func RunMain(m interface{ Run() int }, o ControlPlaneOptions) int {
	shared.Lock()
	shared.opts = o
	shared.Unlock()
	code := m.Run()
	if err := errors.Join(stopShared(), removeSharedBinaries()); err != nil {
		fmt.Fprintln(os.Stderr, "clean up after the tests:", err)
		return max(code, 1)
	}
	return code
}

// Shared returns the control plane of this test process. Objects of other
// tests may be in it. It fails the test if TestMain does not call RunMain, or
// if the control plane cannot be started.
func Shared(tb testing.TB) *ControlPlane {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.plane == nil && shared.err == nil {
		ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
		defer cancel()
		if shared.opts.Log == nil {
			shared.opts.Log = os.Stderr // tb.Log would stay silent for minutes
		}
		shared.plane, shared.err = StartControlPlane(ctx, shared.opts)
	}
	if shared.err != nil {
		tb.Fatalf("start the shared control plane: %v", shared.err)
	}
	return shared.plane
}

func stopShared() error {
	shared.Lock()
	plane := shared.plane
	shared.plane = nil
	shared.Unlock()
	if plane == nil {
		return nil
	}
	// The tests are over: there is no context left that could end this.
	ctx, cancel := context.WithTimeout(context.Background(), 2*controlPlaneGrace)
	defer cancel()
	return plane.Stop(ctx)
}

// OwnControlPlane starts a control plane for one test, for example one that
// stops the API server, and stops it when the test ends.
func OwnControlPlane(tb testing.TB, o ControlPlaneOptions) *ControlPlane {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	if o.Log == nil {
		o.Log = os.Stderr
	}
	plane, err := StartControlPlane(ctx, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		// tb.Context has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), 2*controlPlaneGrace)
		defer cancel()
		if err := plane.Stop(ctx); err != nil {
			tb.Errorf("stop the control plane: %v", err)
		}
	})
	return plane
}

// WorldForTest starts a World around a control plane, which is the shared one unless o says
// another, and stops it when the test ends. Its folder is one for the test.
func WorldForTest(tb testing.TB, ctx context.Context, o WorldOptions) *World {
	tb.Helper()
	if o.Plane == nil {
		o.Plane = Shared(tb)
	}
	o.Dir = ShortTempDir(tb)
	w, err := StartWorld(ctx, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		// tb.Context has ended by now.
		if err := w.Stop(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return w
}

// DriverForTest serves a driver on a socket until the test ends.
func DriverForTest(tb testing.TB, name, socket string) *Driver {
	tb.Helper()
	d, err := ServeDriver(fakecsi.Options{Name: name}, socket)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(d.Server.Crash)
	return d
}

// KillAtEnd kills the process when the test ends, if it still runs, and shows
// the end of its log if the test has failed.
func KillAtEnd(tb testing.TB, p *Process) {
	tb.Helper()
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			tb.Logf("last lines of %s:\n%s", p.name, p.LastLines(40))
		}
	})
}

// ShortTempDir returns a folder that is removed when the test ends, with a
// path short enough for unix sockets, which t.TempDir need not be.
func ShortTempDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "ah-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove temporary folder: %v", err)
		}
	})
	return dir
}

// allowedTimeout is when WaitAllowed gives up.
const allowedTimeout = 2 * time.Minute

// WaitAllowed waits until the API server allows what a role was made for: it takes roles
// and bindings in from a watch, a moment after they are made.
func WaitAllowed(tb testing.TB, client kubernetes.Interface, asked authorizationv1.SubjectAccessReviewSpec) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), allowedTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: asked}, metav1.CreateOptions{})
		if err != nil {
			tb.Fatalf("wait until %s is allowed what was granted: %v", asked.User, err)
		}
		if review.Status.Allowed {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatalf("%s is still not allowed what was granted: %s", asked.User, review.Status.Reason)
		}
	}
}
