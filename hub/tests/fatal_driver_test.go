package tests

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// fatal counts how often the process of a driver has ended because of a call, and says which calls end it.
type fatal struct {
	ends               atomic.Int32
	publish, unpublish string // of a volume
	listings           atomic.Bool
}

// fatalSession is a session to a driver whose process ends at some calls, and with it all calls in flight.
type fatalSession struct {
	*backendSession
	*fatal
	broken context.Context
	end    func()
}

// fatalTo has the process of the driver end at some calls. It comes back after a time.
func (v *virtual) fatalTo(f *fatal, back time.Duration) {
	v.options.Connect = func(ctx context.Context, _ registry.Driver) (hubdriver.Session, error) {
		if f.ends.Load() > 0 {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(back):
			}
		}
		s := fatalSession{backendSession: newBackendSession(v.backend), fatal: f}
		s.broken, s.end = context.WithCancel(context.Background())
		return s, nil
	}
}

func (s fatalSession) crash() error {
	if s.broken.Err() == nil {
		s.ends.Add(1)
		s.end()
		s.backendSession.Close()
	}
	return grpcstatus.Error(codes.Unavailable, "connection lost")
}

func (s fatalSession) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if r.VolumeId == s.publish || s.broken.Err() != nil {
		return nil, s.crash()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.broken, cancel)()
	response, err := s.Backend.ControllerPublishVolume(ctx, r)
	if s.broken.Err() != nil {
		return nil, s.crash()
	}
	return response, err
}

func (s fatalSession) ControllerUnpublishVolume(ctx context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if r.VolumeId == s.unpublish || s.broken.Err() != nil {
		return nil, s.crash()
	}
	return s.Backend.ControllerUnpublishVolume(ctx, r)
}

func (s fatalSession) ListVolumes(ctx context.Context, pageSize int) (csiclient.Published, time.Duration, error) {
	if s.listings.Load() || s.broken.Err() != nil {
		return nil, 0, s.crash()
	}
	return s.backendSession.ListVolumes(ctx, pageSize)
}

// Each new connection ended the backoff of the volume: the driver was ended 1,800 times an hour, and no other attach had the
// time that it takes.
func TestVolumeWhosePublishEndsTheDriverDoesNotKeepOthersFromBeingAttached(t *testing.T) {
	for name, back := range map[string]time.Duration{"restarted at once": 0, "restarted after 5m, as a container that crashes often": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Drift.Interval = 0
				f := &fatal{publish: "bad"}
				v.fatalTo(f, back)
				v.register("n", "id-n")
				v.turn(fakecsi.AttachLatency(fakecsi.Latency{Base: 5 * time.Second})) // of all other volumes
				v.volume("bad")
				v.start()
				v.create(v.attachment("bad", "n"))
				v.pass(10 * time.Minute)
				var others []string
				for _, name := range []string{"v0", "v1", "v2", "v3"} {
					v.volume(name)
					v.create(v.attachment(name, "n"))
					others = append(others, name+"-n")
				}
				before := f.ends.Load()
				v.pass(3 * time.Hour)
				if n := f.ends.Load() - before; n < 10 || n > 3*75 {
					t.Errorf("one volume ended the driver %d times in three hours, want a try about each minute (retry.max)", n)
				}
				for _, name := range others {
					if !v.get(name).Status.Attached {
						t.Errorf("%s, whose attach takes 5s, is not attached after three hours", name)
					}
				}
			})
		})
	}
}

func TestDanglingVolumeWhoseUnpublishEndsTheDriverKeepsItsBackoff(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Interval = 0
		f := &fatal{unpublish: "v"}
		v.fatalTo(f, 0)
		v.start()
		va := v.attached()
		v.stripFinalizers(va.Name)
		v.delete(va)
		v.pass(10 * time.Minute)
		before := f.ends.Load()
		v.pass(time.Hour)
		if n := f.ends.Load() - before; n < 10 || n > 75 {
			t.Errorf("one detach ended the driver %d times in an hour, want a try about each minute (retry.max)", n)
		}
	})
}

// The driver is away for longer than its lease lasts: each time the lease is released, and taken again.
func TestVolumeThatEndsTheDriverKeepsItsBackoffInTheNextTerm(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Interval = 0
		v.leased()
		f := &fatal{publish: "bad"}
		v.fatalTo(f, 0)
		v.register("n", "id-n")
		v.volume("bad")
		stop := v.start()
		v.create(v.attachment("bad", "n"))
		v.pass(10 * time.Minute)
		v.driver.Mode = registry.ModePaused
		before := f.ends.Load()
		for range 60 { // a pause ends the term
			v.updates <- registry.Snapshot{virtualDriver: v.driver}
			v.pass(time.Second)
			v.driver.Mode = map[registry.Mode]registry.Mode{registry.ModePaused: registry.ModeActive, registry.ModeActive: registry.ModePaused}[v.driver.Mode]
			v.updates <- registry.Snapshot{virtualDriver: v.driver}
			v.pass(time.Second)
		}
		if n := f.ends.Load() - before; n > 4 {
			t.Errorf("the volume ended the driver %d times in two minutes with a new term each two seconds, want a try each minute", n)
		}
		stop()
	})
}

// The listing was repeated after each drift.interval (1m), whatever it did to the driver: no attach that takes longer ever ended.
func TestListingThatEndsTheDriverIsRepeatedLessAndLess(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		f := &fatal{}
		f.listings.Store(true)
		v.fatalTo(f, 0)
		v.register("n", "id-n")
		v.turn(fakecsi.AttachLatency(fakecsi.Latency{Base: 20 * time.Minute}))
		v.driver.Timeout = time.Hour
		v.volume("v")
		v.start()
		v.create(v.attachment("v", "n"))
		v.pass(24 * time.Hour)
		if !v.get("v-n").Status.Attached {
			t.Errorf("not attached after a day: %d listings ended the driver, and each cut off the attach", f.ends.Load())
		}
		if n := f.ends.Load(); n < 24 || n > 32 {
			t.Errorf("%d listings in a day that all fail, want one each hour after 1m, 2m, 4m ...", n)
		}
		f.listings.Store(false)
		v.pass(2 * time.Hour)
		before := v.backend.Books().Methods[fakecsi.ListVolumes].Ended
		v.pass(time.Hour)
		if n := v.backend.Books().Methods[fakecsi.ListVolumes].Ended - before; n < 59 {
			t.Errorf("%d listings in an hour, want one each minute again", n)
		}
	})
}
