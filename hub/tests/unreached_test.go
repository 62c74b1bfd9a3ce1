package tests

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// endpoint is the way of a hub to its driver, which can be cut.
type endpoint struct {
	v       *virtual
	away    atomic.Bool
	session atomic.Pointer[backendSession]
}

// endpoint has hubs that are started later reach the driver over an endpoint.
func (v *virtual) endpoint() *endpoint {
	e := &endpoint{v: v}
	v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
		if e.away.Load() {
			return nil, io.EOF
		}
		s := newBackendSession(v.backend)
		e.session.Store(s)
		return s, nil
	}
	return e
}

func (e *endpoint) cut() {
	e.away.Store(true)
	if s := e.session.Load(); s != nil {
		s.end()
	}
}

func (e *endpoint) mend() { e.away.Store(false) }

// sidecar runs a csi-attacher that competes for the driver's lease, until stop is called. stop does not release the
// lease, as csi-attacher by default.
func (v *virtual) sidecar() (leads *atomic.Bool, stop func()) {
	v.t.Helper()
	leads = &atomic.Bool{}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: "hub", Name: registry.LeaseName(virtualDriver)},
			Client:     v.kube.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "csi-attacher-0"},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 5 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads.Store(true) }, OnStoppedLeading: func() { leads.Store(false) }},
	})
	if err != nil {
		v.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(v.t.Context(), klog.Logger{}))
	ended := make(chan struct{})
	go func() { defer close(ended); elector.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	v.t.Cleanup(stop)
	return leads, stop
}

// holder returns the holder of the driver's lease, "" if there is none.
func (v *virtual) holder() string {
	v.t.Helper()
	l, err := v.kube.CoordinationV1().Leases("hub").Get(v.t.Context(), registry.LeaseName(virtualDriver), metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return ptr.Deref(l.Spec.HolderIdentity, "")
}

// The hub took the lease of a sidecar that was rolled out slowly, and the sidecar waited for ever.
func TestHubWithAWrongEndpointNeverTakesTheLeaseOfASidecarThatIsAwayForLong(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		_, stop := v.sidecar()
		v.pass(time.Minute)
		v.endpoint().cut()
		v.start()
		v.pass(time.Minute)
		stop()
		for range 60 {
			v.pass(time.Minute)
			if h := v.holder(); h != "csi-attacher-0" {
				t.Fatalf("the lease is held by %q", h)
			}
		}
		leads, _ := v.sidecar()
		v.pass(time.Minute)
		if !leads.Load() {
			t.Error("the sidecar does not work again")
		}
	})
}

func TestSidecarThatComesDuringALongOutageOfTheHubsEndpointGetsTheLeaseAndGivesItBack(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		e := v.endpoint()
		v.start()
		v.pass(time.Minute)
		e.cut()
		v.pass(time.Minute) // the lease was offered, and nobody was there
		leads, stop := v.sidecar()
		v.pass(3 * time.Minute)
		if h := v.holder(); h != "hub" || leads.Load() {
			t.Fatalf("after four minutes the lease is held by %q, want the hub", h)
		}
		v.pass(time.Minute + 30*time.Second) // the sidecar looks at the lease at random times
		if !leads.Load() {
			t.Fatalf("after five minutes the lease is held by %q, want the sidecar", v.holder())
		}
		e.mend()
		v.pass(time.Hour)
		if !leads.Load() {
			t.Error("the hub took a lease that the sidecar holds")
		}
		e.cut()
		v.pass(time.Second)
		stop()
		v.pass(time.Minute)
		if h := v.holder(); h != "csi-attacher-0" {
			t.Errorf("the lease is held by %q, which cannot call the driver", h)
		}
		e.mend()
		v.pass(3 * time.Second)
		if h := v.holder(); h != "hub" {
			t.Errorf("the lease is held by %q, want the hub, which is connected", h)
		}
	})
}

// The connection was lost a second before the lease expired: the driver still counted as callable.
func TestHubTakesTheLeaseOfAnotherOnlyWhileItIsConnected(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		_, stop := v.sidecar()
		v.pass(time.Minute)
		e := v.endpoint()
		v.start()
		v.pass(time.Minute)
		stop()
		v.pass(9 * time.Second)
		e.cut()
		v.pass(time.Minute)
		if h := v.holder(); h != "csi-attacher-0" {
			t.Errorf("the lease is held by %q", h)
		}
	})
}

// Nobody works for the driver then, and nobody else knows of the volume.
func TestVolumeIsDetachedWhoseVolumeAttachmentVanishedWhileTheLeaseWasGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		sidecar bool // has the lease in between
		calls   int
	}{"nobody held it since": {false, 1}, "a sidecar held it in between": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.leased()
				e := v.endpoint()
				v.register("n", "id-n")
				v.volume("v")
				v.start()
				va := v.attachment("v", "n")
				v.create(va)
				v.pass(time.Minute)
				e.cut()
				v.pass(10 * time.Minute)
				if h := v.holder(); h != "" || v.get(va.Name) == nil || !v.get(va.Name).Status.Attached {
					t.Fatalf("the lease is held by %q", h)
				}
				v.stripFinalizers(va.Name)
				v.delete(va)
				v.pass(time.Minute)
				if n := v.danglingCount(); n != 1 {
					t.Errorf("%d volumes said to be left attached, want one", n)
				}
				if c.sidecar {
					leads, stop := v.sidecar()
					v.pass(time.Minute)
					if !leads.Load() {
						t.Fatal("the sidecar does not have the lease")
					}
					stop()
				}
				e.mend()
				v.pass(time.Minute)
				if n := v.calls(fakecsi.ControllerUnpublishVolume, "v", "id-n"); n != c.calls || v.backend.Books().IsAttached("v", "id-n") {
					t.Errorf("%d calls to detach it, want %d; attached: %v", n, c.calls, v.backend.Books().IsAttached("v", "id-n"))
				}
			})
		})
	}
}

// A call hangs and Probes fail: the driver cannot be called, and the call must end first.
func TestLeaseIsNotGivenUpWhileACallIsInFlight(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		v.driver.Timeout = 20 * time.Minute
		e := v.endpoint()
		v.register("n", "id-n")
		v.volume("v")
		v.start()
		v.pass(time.Second)
		e.away.Store(true) // for a second connection
		v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}, {Method: fakecsi.Probe}}})
		va := v.attachment("v", "n")
		v.create(va)
		v.pass(15 * time.Minute)
		if d := v.hub.Drivers()[0]; d.Up || v.holder() != "hub" || v.backend.Books().AttachInFlight.Now != 1 {
			t.Fatalf("up %v, the lease is held by %q, %d calls in flight", d.Up, v.holder(), v.backend.Books().AttachInFlight.Now)
		}
		v.turn(fakecsi.Knobs{Release: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
		v.pass(2 * time.Second)
		if got := v.get(va.Name); !got.Status.Attached {
			t.Error("not attached, although the call succeeded")
		}
		if h := v.holder(); h != "" {
			t.Errorf("the lease is held by %q", h)
		}
	})
}

// It is as fast as it was while the hub held the lease all the time.
func TestDriverIsServedAtOnceWhenItIsBackBeforeAndAfterTheLeaseWasGivenUp(t *testing.T) {
	for name, away := range map[string]time.Duration{"a minute": time.Minute, "an hour": time.Hour} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.leased()
				e := v.endpoint()
				v.register("n", "id-n")
				v.volume("v")
				v.start()
				v.pass(time.Minute)
				e.cut()
				v.pass(away)
				va := v.attachment("v", "n")
				v.create(va)
				e.mend()
				connected, attached := time.Time{}, time.Time{}
				for range 1000 {
					v.pass(10 * time.Millisecond)
					if connected.IsZero() && v.hub.Drivers()[0].Up {
						connected = time.Now()
					}
					if v.get(va.Name).Status.Attached {
						attached = time.Now()
						break
					}
				}
				if attached.IsZero() || attached.After(connected) {
					t.Errorf("attached %v after the driver was connected, want at once", attached.Sub(connected))
				}
			})
		})
	}
}
