package tests

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Rule: with attachRequired false and no PUBLISH_UNPUBLISH_VOLUME, what no VolumeAttachment owns ends without a call;
// with attachRequired true it waits, visibly.
func TestVolumeLeftAttachedIsForgottenWhenItsDriverSaysTwiceThatItAttachesNothing(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		endSession := v.connectOnceWithUnpublish()
		v.start()
		v.leaveAttached(codes.Internal)
		endSession()
		v.pass(time.Minute)
		calls := v.backend.Books().Methods[fakecsi.ControllerUnpublishVolume].Begun
		v.pass(24 * time.Hour)
		if n := v.danglingCount(); n != 1 {
			t.Errorf("%d volumes said to be left attached while CSIDriver says nothing, want one", n)
		}
		v.create(testbed.CSIDriver{Name: virtualDriver, NoAttach: true})
		v.pass(time.Minute)
		if n := v.danglingCount(); n != 0 {
			t.Errorf("%d volumes said to be left attached, want none", n)
		}
		if more := v.backend.Books().Methods[fakecsi.ControllerUnpublishVolume].Begun - calls; more > 0 {
			t.Errorf("%d calls that the driver does not have", more)
		}
	})
}

// listingSession is a session whose listings are made up.
type listingSession struct {
	*backendSession
	list func() csiclient.Published
}

func (s listingSession) ListVolumes(context.Context, int) (csiclient.Published, time.Duration, error) {
	return s.list(), 0, nil
}

// Rule: absence from the driver's list ends what no VolumeAttachment owns only after an answered unpublish, in two
// listings begun later than the timeout after the last call, and only if the volume is listed with its nodes.
func TestVolumeLeftAttachedEndsWhenTheDriverListsItElsewhere(t *testing.T) {
	elsewhere := func() csiclient.Published { return csiclient.Published{"v": {IDs: []string{"id-other"}}} }
	refuse := func(v *virtual) { v.refuseToDetach("id-n", codes.Internal) }
	for name, c := range map[string]struct {
		list func() csiclient.Published
		fail func(*virtual) // the detach
		ends bool

		timeout time.Duration // of a call; 0: much shorter than the time between two calls
	}{
		"listed at another node":                          {elsewhere, refuse, true, 0},
		"listed at another node, a call may be under way": {elsewhere, refuse, false, 3 * time.Hour},
		"listed at no node":                               {func() csiclient.Published { return csiclient.Published{"v": {}} }, refuse, true, 0},
		"listed there":                                    {func() csiclient.Published { return csiclient.Published{"v": {IDs: []string{"id-n"}}} }, refuse, false, 0},
		"listed without its nodes":                        {func() csiclient.Published { return csiclient.Published{"v": {Unknown: true}} }, refuse, false, 0},
		"not listed":                                      {func() csiclient.Published { return csiclient.Published{} }, refuse, false, 0},
		"listed elsewhere every other time":               {alternately(elsewhere, func() csiclient.Published { return csiclient.Published{"v": {IDs: []string{"id-n"}}} }), refuse, false, 0},
		"listed elsewhere, and no answer so far": {elsewhere, func(v *virtual) {
			v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}})
		}, false, 0},
		"listed elsewhere, and the driver was not asked": {elsewhere, func(v *virtual) {
			v.delete(testbed.Secret{Name: "secret"})
		}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Timeout, v.driver.Drift.Action = cmp.Or(c.timeout, 10*time.Second), registry.DriftReport
				v.driver.Retry.Initial, v.driver.Retry.Max = 10*time.Minute, 10*time.Minute // longer than a call and two listings
				var begin atomic.Bool
				v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
					return listingSession{newBackendSession(v.backend), func() csiclient.Published {
						if !begin.Load() {
							return csiclient.Published{}
						}
						return c.list()
					}}, nil
				}
				v.register("n", "id-n")
				v.create(testbed.Secret{Name: "secret", Data: map[string]string{"key": "one"}})
				v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: secretRef("secret")})
				stop := v.start()
				va := v.attachment("v", "n")
				v.create(va)
				v.pass(time.Second)
				stop()
				v.start() // it remembers no secret
				v.pass(time.Second)
				c.fail(v)
				v.deleteWithoutDetach(va)
				v.pass(time.Second)
				begin.Store(true)
				v.pass(20 * time.Second)
				if n := v.danglingCount(); n != 1 {
					t.Fatalf("%d volumes said to be left attached at first, want one", n)
				}
				v.pass(2 * time.Hour)
				if ended := v.danglingCount() == 0; ended != c.ends {
					t.Errorf("ended: %v, want %v", ended, c.ends)
				}
				if n := len(v.backend.Books().CallsOf(fakecsi.ControllerUnpublishVolume, "v")); c.ends && n > 3 {
					t.Errorf("%d calls, want none after the listings", n)
				}
				v.turn(fakecsi.Knobs{ReleaseAll: true})
			})
		})
	}
}

func alternately[T any](a, b func() T) func() T {
	var n atomic.Int64
	return func() T {
		if n.Add(1)%2 == 0 {
			return b()
		}
		return a()
	}
}

// Rule: a publication keeps the secret reference of its publish, also when its VolumeAttachment is gone.
func TestVolumeLeftAttachedIsDetachedWithTheSecretOfItsPublish(t *testing.T) {
	for name, handle := range map[string]string{"the PersistentVolume has another secret": "v", "and another handle": "new"} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				_, va := v.attachedWithSecret()
				v.refuseToDetach("id-n", codes.Internal)
				v.deleteWithoutDetach(va)
				v.recreate(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: handle, Secret: secretRef("second")})
				v.turn(fakecsi.Knobs{ClearFaults: true})
				v.pass(time.Hour)
				if got := v.backend.LastUnpublish("v").GetSecrets()["key"]; got != "one" || v.danglingCount() > 0 {
					t.Errorf("secret of the detach %q, want that of the publish; %d volumes said to be left attached", got, v.danglingCount())
				}
				if calls := done(v.backend, "new"); len(calls) > 0 {
					t.Errorf("calls %v for the new volume", calls)
				}
			})
		})
	}
}

// Rule: an unconfirmed dangling publication ends when another writer's detach of that target is seen, or its attach of the
// single-node volume elsewhere.
func TestVolumeLeftAttachedIsNotDetachedOnceAnotherAttacherHasSeenToIt(t *testing.T) {
	single, multi := corev1.ReadWriteOnce, corev1.ReadWriteMany
	attachedElsewhere := func(v *virtual) {
		v.register("other", "id-other")
		v.pass(2 * time.Second)
		v.writtenByAnother(v.attachment("v", "other"), "id-other")
	}
	for name, c := range map[string]struct {
		mode  corev1.PersistentVolumeAccessMode
		after func(*virtual) // the VolumeAttachment vanished
		calls int
	}{
		"nothing seen": {single, func(*virtual) {}, 1},
		"its detach seen": {single, func(v *virtual) {
			va := v.attachment("v", "n")
			v.writtenByAnother(va, "id-n")
			v.pass(time.Second)
			v.delete(va)
			v.pass(time.Second)
			v.stripFinalizers(va.Name)
		}, 0},
		"attached elsewhere, single-node": {single, attachedElsewhere, 0},
		"attached elsewhere, multi-node":  {multi, attachedElsewhere, 1},
		"marked elsewhere by mistake": {single, func(v *virtual) { // kubernetes/kubernetes issue 124749
			v.register("other", "id-other")
			v.pass(2 * time.Second)
			va := v.attachment("v", "other").Build()
			va.Status.Attached = true
			if _, err := v.kube.StorageV1().VolumeAttachments().Create(v.t.Context(), va, metav1.CreateOptions{}); err != nil {
				v.t.Fatal(err)
			}
		}, 1},
	} {
		for _, standby := range []bool{true, false} {
			kind := map[bool]string{true: "that vanished before the term", false: "of a term before"}[standby]
			t.Run(name+", "+kind, func(t *testing.T) {
				inVirtualTime(t, func(v *virtual) {
					v.driver.Drift.Interval = 0
					v.register("n", "id-n")
					v.volume("v", c.mode)
					v.leased()
					va := v.attachment("v", "n")
					var release func()
					if standby {
						release = v.holdLease("another")
						v.start()
						v.writtenByAnother(va, "id-n")
						v.pass(time.Second)
						v.stripFinalizers(va.Name)
						v.delete(va)
					} else {
						v.start()
						v.create(va)
						v.pass(time.Minute)
						v.refuseToDetach("id-n", codes.Internal)
						v.deleteWithoutDetach(va)
						v.pass(time.Second)
						release = v.stealLease("another")
					}
					v.pass(time.Minute)
					before := v.calls(fakecsi.ControllerUnpublishVolume, "v", "id-n")
					c.after(v)
					v.pass(time.Minute)
					v.turn(fakecsi.Knobs{ClearFaults: true})
					if n := v.calls(fakecsi.ControllerUnpublishVolume, "v", "id-n"); n != before {
						t.Fatalf("%d calls while another one has the lease", n-before)
					}
					release()
					v.pass(15 * time.Minute)
					if n := v.calls(fakecsi.ControllerUnpublishVolume, "v", "id-n") - before; n != c.calls || v.danglingCount() > 0 {
						t.Errorf("%d calls to detach it, want %d; %d volumes said to be left attached", n, c.calls, v.danglingCount())
					}
				})
			})
		}
	}
}

// Rule: state outlives sessions, terms, modes, and the driver's absence from the configuration.
func TestVolumeLeftAttachedIsRememberedWhateverComesBetween(t *testing.T) {
	mode := func(m registry.Mode) func(*virtual, *backendSession) {
		return func(v *virtual, _ *backendSession) {
			other := v.driver
			other.Mode = m
			v.updates <- registry.Snapshot{virtualDriver: other}
			v.pass(time.Hour)
			v.updates <- registry.Snapshot{virtualDriver: v.driver}
		}
	}
	for name, between := range map[string]func(*virtual, *backendSession){
		"a session": func(_ *virtual, s *backendSession) { s.Close() },
		"a term": func(v *virtual, _ *backendSession) {
			release := v.stealLease("another")
			v.pass(time.Hour)
			release()
		},
		"paused":  mode(registry.ModePaused),
		"observe": mode(registry.ModeObserve),
		"not in the configuration": func(v *virtual, _ *backendSession) {
			v.updates <- registry.Snapshot{}
			v.pass(time.Hour)
			v.updates <- registry.Snapshot{virtualDriver: v.driver}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Drift.Interval = 0 // nobody else tells of it
				var last atomic.Pointer[backendSession]
				v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
					s := newBackendSession(v.backend)
					last.Store(s)
					return s, nil
				}
				v.leased()
				v.start()
				v.pass(time.Minute)
				v.leaveAttached(codes.Internal)
				v.pass(time.Minute)
				between(v, last.Load())
				v.pass(time.Minute)
				if n := v.danglingCount(); n != 1 {
					t.Errorf("%d volumes said to be left attached, want one", n)
				}
				v.turn(fakecsi.Knobs{ClearFaults: true})
				v.pass(15 * time.Minute)
				want := []string{"ControllerPublishVolume id-n", "ControllerUnpublishVolume id-n"}
				if calls := done(v.backend, "v"); !slices.Equal(calls, want) || v.danglingCount() > 0 {
					t.Errorf("calls %v, want %v; %d volumes said to be left attached", calls, want, v.danglingCount())
				}
			})
		})
	}
}

// Rule: observe and paused record, and only deletions: what vanishes meanwhile is detached when the driver is active again.
func TestVolumeOfAnAttachmentThatVanishesWhileNobodyWorksIsDetachedLater(t *testing.T) {
	for _, m := range []registry.Mode{registry.ModePaused, registry.ModeObserve} {
		t.Run(string(m), func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Drift.Interval = 0
				stop := v.start()
				va := v.attached()
				stop()
				active := v.driver
				v.driver.Mode = m
				v.start() // it remembers nothing
				v.pass(time.Minute)
				v.volume("asked-for")
				v.create(v.attachment("asked-for", "n"))
				v.stripFinalizers(va.Name)
				v.delete(va)
				v.pass(time.Hour)
				want := []string{"ControllerPublishVolume id-n"}
				if calls := done(v.backend, "v"); !slices.Equal(calls, want) {
					t.Fatalf("calls %v, want %v", calls, want)
				}
				v.updates <- registry.Snapshot{virtualDriver: active}
				v.pass(time.Minute)
				want = append(want, "ControllerUnpublishVolume id-n")
				if calls := done(v.backend, "v"); !slices.Equal(calls, want) || v.danglingCount() > 0 {
					t.Errorf("calls %v, want %v; %d volumes said to be left attached", calls, want, v.danglingCount())
				}
			})
		})
	}
}
