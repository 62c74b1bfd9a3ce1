package tests

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/race"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const inUseText = `no VolumeAttachment has the volume there, but it is in use on node "n": it stays attached until it is not`

// Somebody has removed the VolumeAttachment of a Pod that runs by force, or etcd was restored from a backup.
func TestVolumeInUseIsNotDetachedWhenItsVolumeAttachmentVanishes(t *testing.T) {
	eachInVirtualTime(t, map[string]func(v *virtual, stop func(), va testbed.VolumeAttachment){
		"removed by force": func(v *virtual, _ func(), va testbed.VolumeAttachment) { v.vanish(va) },
		"missing in a new list, and the hub has made no call for it": func(v *virtual, stop func(), va testbed.VolumeAttachment) {
			stop()
			v.start()
			v.pass(time.Second)
			v.api.HoldWatches("volumeattachments")
			v.stripFinalizers(va.Name)
			v.delete(va)
			v.api.ForgetEvents()
			v.api.ReleaseWatches("volumeattachments")
		},
	}, func(v *virtual, vanish func(v *virtual, stop func(), va testbed.VolumeAttachment)) {
		stop := v.start()
		va := v.attached()
		v.ready("n", corev1.ConditionTrue)
		v.inUse("n", "v")
		vanish(v, stop, va)
		v.pass(10 * time.Minute)
		v.wantUnpublishes("it is in use", 0, 1)
		if events := v.eventsWith("DetachFailed"); len(events) == 0 || !strings.HasSuffix(events[0], inUseText) {
			v.t.Errorf("Events: %q", events)
		}
		if shown := v.dangled(); shown[0].LastError != inUseText || shown[0].NextTry.IsZero() {
			v.t.Errorf("shown: %+v", shown)
		}
		v.inUse("n")
		v.pass(v.driver.Retry.Max)
		v.wantUnpublishes("it is not in use any more", 1, 0)
	})
}

func TestVanishedVolumeIsDetachedUnlessTheNodeThatHasItsNodeIDUsesIt(t *testing.T) {
	type row struct {
		change func(v *virtual)
		want   int
	}
	eachInVirtualTime(t, map[string]row{
		"in use":     {func(v *virtual) { v.inUse("n", "v") }, 0},
		"another is": {func(v *virtual) { v.inUse("n", "v2") }, 1},
		"not ready":  {func(v *virtual) { v.inUse("n", "v"); v.ready("n", corev1.ConditionUnknown) }, 1},
		"Node gone":  {func(v *virtual) { v.delete(testbed.Node{Name: "n"}) }, 1},
		"another machine has the name of the node, and uses the volume by another VolumeAttachment": {
			func(v *virtual) { v.inUse("n", "v"); v.register("n", "id-new") }, 1},
		"another node has the node ID, and uses it": {
			func(v *virtual) { v.register("n", "id-new"); v.register("m", "id-n"); v.inUse("m", "v") }, 0},
		"the node plugin restarts":       {func(v *virtual) { v.inUse("n", "v"); v.delete(testbed.CSINode{Node: "n"}) }, 0},
		"the API server does not answer": {func(v *virtual) { v.reply(http.StatusInternalServerError, reads("nodes")) }, 0},
	}, func(v *virtual, c row) {
		v.driver.Drift.Interval = 0
		v.start()
		va := v.attached()
		c.change(v)
		v.pass(time.Second)
		v.vanish(va)
		v.pass(10 * time.Minute)
		v.wantUnpublishes("in ten minutes", c.want, 1-c.want)
	})
}

// The driver may allow that, and two nodes would write to the volume.
func TestVolumeThatIsInUseWithoutAVolumeAttachmentIsNotAttachedElsewhere(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.inUse("n", "v")
		v.vanish(va)
		v.register("m", "id-m")
		v.create(v.attachment("v", "m"))
		v.pass(time.Hour)
		v.wantCalls("v", "publish id-n")
		v.inUse("n")
		v.pass(v.driver.Retry.Max)
		v.wantAttached("v-m")
	})
}

// kube-controller-manager makes the VolumeAttachment of the running Pod again, with the same name. It waits, since the node
// counts as full.
func TestVolumeIsNotDetachedWhileAVolumeAttachmentAsksForItOnItsNode(t *testing.T) {
	race.Skip(t, race.Hours)
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, _ func()) {
		v.api.HoldWatches("volumeattachments")
		v.stripFinalizers(vas[0].Name)
		v.delete(vas[0])
		v.create(vas[0])
		v.api.ReleaseWatches("volumeattachments")
		v.pass(12 * time.Hour)
		if n := v.calls(unpublish, "v00", "id-n"); n > 0 {
			t.Errorf("unpublished %d times while a VolumeAttachment asks for it there: %+v", n, v.get(vas[0].Name).Status)
		}
	})
}

// The hub hands the driver over, or ends.
func TestDrainDetachesNothingThatIsInUseAndReadsEachNodeOnce(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour
		stop := v.start()
		v.register("n", "id-n")
		vas := v.many("v", 20)
		var used []string
		for i := 0; i < len(vas); i += 2 {
			used = append(used, fmt.Sprint("v", i))
		}
		v.pass(time.Second)
		v.inUse("n", used...)
		v.setKnobs(failing(unpublish, codes.Internal))
		v.vanish(vas...)
		v.pass(time.Second)
		v.setKnobs(healed)
		tried, read := v.begun(unpublish), v.api.Count("get", "nodes")
		stop()
		if got, reads := v.begun(unpublish)-tried, v.api.Count("get", "nodes")-read; got != 10 || reads != 1 {
			t.Errorf("%d unpublishes, want 10, by %d reads of the Node", got, reads)
		}
		for i := range vas {
			if name := fmt.Sprint("v", i); v.has(name, "id-n") != (i%2 == 0) {
				t.Errorf("%s: attached %v", name, i%2 != 0)
			}
		}
	})
}

// etcd was restored, say, and the VolumeAttachments of all Pods of a node are missing.
func TestNodeThatUsesManyVanishedVolumesIsReadForAllOfThem(t *testing.T) {
	race.Skip(t, race.Hours)
	const volumes, minutes = 50, 30
	inVirtualTime(t, func(v *virtual) {
		v.start()
		v.register("n", "id-n")
		vas := v.many("v", volumes)
		var used []string
		for _, va := range vas {
			used = append(used, va.PersistentVolume)
		}
		v.pass(10 * time.Second)
		v.inUse("n", used...)
		v.vanish(vas...)
		v.pass(10 * time.Minute)
		nodes, own := v.api.Count("get", "nodes"), v.api.Count("get", "volumeattachments")
		v.pass(minutes * time.Minute)
		nodes, own = v.api.Count("get", "nodes")-nodes, v.api.Count("get", "volumeattachments")-own
		if nodes > 5*minutes || own > 5*minutes {
			t.Errorf("%d reads of the Node and %d of VolumeAttachments in %d minutes", nodes, own, minutes)
		}
		if n := v.begun(unpublish); n > 0 {
			t.Errorf("%d unpublishes", n)
		}
		v.inUse("n")
		v.pass(3 * time.Minute)
		v.wantUnpublishes("after the Pods have ended", volumes, 0)
	})
}

// With attachRequired false and no PUBLISH_UNPUBLISH_VOLUME, what no VolumeAttachment owns ends without a call;
// with attachRequired true it waits, visibly.
func TestVolumeLeftAttachedIsForgottenWhenItsDriverSaysTwiceThatItAttachesNothing(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.incapable(1)
		v.start()
		v.leaveAttached(codes.Internal)
		v.hangUp()
		v.pass(time.Minute)
		calls := v.begun(unpublish)
		v.pass(3 * time.Hour)
		v.wantUnpublishes("CSIDriver says nothing", calls, 1)
		v.create(testbed.CSIDriver{Name: virtualDriver, NoAttach: true})
		v.pass(time.Minute)
		v.wantUnpublishes("it says so too", calls, 0)
	})
}

// Absence from the driver's list ends what no VolumeAttachment owns only after an answered unpublish, in two
// listings begun later than the timeout after the last call, and only if the volume is listed with its nodes.
func TestVolumeLeftAttachedEndsWhenTheDriverListsItElsewhere(t *testing.T) {
	at := func(nodes ...string) csiclient.Published { return csiclient.Published{"v": {IDs: nodes}} }
	refuse := func(v *virtual) { v.refuseToDetach("id-n", codes.Internal) }
	type row struct {
		list    []csiclient.Published // one after the other
		fail    func(*virtual)        // the detach
		ends    bool
		timeout time.Duration // of a call; 0: much shorter than the time between two calls
	}
	elsewhere := []csiclient.Published{at("id-other")}
	eachInVirtualTime(t, map[string]row{
		"listed at another node":                          {elsewhere, refuse, true, 0},
		"listed at another node, a call may be under way": {elsewhere, refuse, false, 3 * time.Hour},
		"listed at no node":                               {[]csiclient.Published{at()}, refuse, true, 0},
		"listed there":                                    {[]csiclient.Published{at("id-n")}, refuse, false, 0},
		"listed without its nodes":                        {[]csiclient.Published{{"v": {Unknown: true}}}, refuse, false, 0},
		"not listed":                                      {[]csiclient.Published{{}}, refuse, false, 0},
		"listed elsewhere every other time":               {[]csiclient.Published{at("id-other"), at("id-n")}, refuse, false, 0},
		"listed elsewhere, and no answer so far":          {elsewhere, func(v *virtual) { v.setKnobs(hanging(unpublish)) }, false, 0},
		"listed elsewhere, and the driver was not asked":  {elsewhere, func(v *virtual) { v.delete(testbed.Secret{Name: "first"}) }, false, 0},
	}, func(v *virtual, c row) {
		v.driver.Timeout, v.driver.Drift.Action = cmp.Or(c.timeout, 10*time.Second), registry.DriftReport
		v.driver.Retry.Initial, v.driver.Retry.Max = 10*time.Minute, 10*time.Minute // longer than a call and two listings
		var begin atomic.Bool
		var listings atomic.Int64
		v.connect = func(_ context.Context, _ int, s *backendSession) error {
			s.list = func() csiclient.Published {
				if !begin.Load() {
					return csiclient.Published{}
				}
				return c.list[listings.Add(1)%int64(len(c.list))]
			}
			return nil
		}
		stop := v.start()
		va := v.attachedWithSecret()
		stop()
		v.start() // it remembers no secret
		v.pass(time.Second)
		c.fail(v)
		v.deleteWithoutDetach(va)
		v.pass(time.Second)
		begin.Store(true)
		v.pass(20 * time.Second)
		v.wantDangling(1)
		v.pass(2 * time.Hour)
		v.wantDangling(map[bool]int{false: 1}[c.ends])
		if n := len(v.backend.Books().CallsOf(unpublish, "v")); c.ends && n > 3 {
			v.t.Errorf("%d calls, want none after the listings", n)
		}
		v.setKnobs(healed)
	})
}

// A publication keeps the secret reference of its publish, also when its VolumeAttachment is gone.
func TestVolumeLeftAttachedIsDetachedWithTheSecretOfItsPublish(t *testing.T) {
	eachInVirtualTime(t, map[string]string{"the PersistentVolume has another secret": "v", "and another handle": "new"}, func(v *virtual, handle string) {
		v.start()
		va := v.attachedWithSecret()
		v.refuseToDetach("id-n", codes.Internal)
		v.deleteWithoutDetach(va)
		v.recreate(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: handle, Secret: secretRef("second")})
		v.setKnobs(healed)
		v.pass(time.Hour)
		v.wantDangling(0)
		if got := v.backend.LastUnpublish("v").GetSecrets()["key"]; got != "one" {
			v.t.Errorf("secret of the detach %q, want that of the publish", got)
		}
		v.wantCalls("new")
	})
}

// An unconfirmed dangling publication ends when another writer's detach of that target is seen, or its attach of the
// single-node volume elsewhere.
func TestVolumeLeftAttachedIsNotDetachedOnceAnotherAttacherHasSeenToIt(t *testing.T) {
	single, multi := corev1.ReadWriteOnce, corev1.ReadWriteMany
	elsewhere := func(v *virtual) testbed.VolumeAttachment {
		v.register("other", "id-other")
		v.pass(2 * time.Second)
		return v.attachment("v", "other")
	}
	attachedElsewhere := func(v *virtual) { v.write(written(elsewhere(v), "id-other")) }
	type row struct {
		mode  corev1.PersistentVolumeAccessMode
		after func(*virtual) // the VolumeAttachment vanished
		calls int
	}
	rows := map[string]row{
		"nothing seen": {single, func(*virtual) {}, 1},
		"its detach seen": {single, func(v *virtual) {
			va := v.attachment("v", "n")
			v.write(written(va, "id-n"))
			v.pass(time.Second)
			v.delete(va)
			v.pass(time.Second)
			v.stripFinalizers(va.Name)
		}, 0},
		"attached elsewhere, single-node": {single, attachedElsewhere, 0},
		"attached elsewhere, multi-node":  {multi, attachedElsewhere, 1},
		"marked elsewhere by mistake": {single, func(v *virtual) { // kubernetes/kubernetes issue 124749
			va := elsewhere(v).Build()
			va.Status.Attached = true
			v.write(va)
		}, 1},
	}
	for name, standby := range map[string]bool{"it vanished before the term": true, "in a term before": false} {
		t.Run(name, func(t *testing.T) {
			eachInVirtualTime(t, rows, func(v *virtual, c row) {
				v.driver.Drift.Interval = 0
				v.register("n", "id-n")
				v.volume("v", c.mode)
				v.leased()
				va := v.attachment("v", "n")
				var release func()
				if standby {
					release = v.holdLease("another")
					v.start()
					v.write(written(va, "id-n"))
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
				before := v.calls(unpublish, "v", "id-n")
				c.after(v)
				v.pass(time.Minute)
				v.setKnobs(healed)
				if n := v.calls(unpublish, "v", "id-n"); n != before {
					v.t.Fatalf("%d calls while another one has the lease", n-before)
				}
				release()
				v.pass(15 * time.Minute)
				if n := v.calls(unpublish, "v", "id-n") - before; n != c.calls {
					v.t.Errorf("%d calls to detach it, want %d", n, c.calls)
				}
				v.wantDangling(0)
			})
		})
	}
}

// State outlives sessions, terms, modes, settings, and the driver's absence from the configuration.
func TestVolumeLeftAttachedIsRememberedWhateverComesBetween(t *testing.T) {
	mode := func(m registry.Mode) func(*virtual) {
		return func(v *virtual) {
			v.mode(m)
			v.pass(20 * time.Minute)
			v.mode(registry.ModeActive)
		}
	}
	eachInVirtualTime(t, map[string]func(*virtual){
		"nothing":   func(*virtual) {},
		"a session": (*virtual).hangUp,
		"a setting": func(v *virtual) { v.driver.Workers++; v.serve() },
		"a term": func(v *virtual) {
			release := v.stealLease("another")
			v.pass(20 * time.Minute)
			release()
		},
		"paused":  mode(registry.ModePaused),
		"observe": mode(registry.ModeObserve),
		"not in the configuration": func(v *virtual) {
			v.updates <- registry.Snapshot{}
			v.pass(20 * time.Minute)
			v.serve()
		},
		"a volume that waits for its PersistentVolume": func(v *virtual) { v.create(v.attachment("away", "n")) },
	}, func(v *virtual, between func(*virtual)) {
		v.driver.Drift.Interval = 0 // nobody else tells of it
		v.leased()
		v.start()
		v.pass(time.Minute)
		v.leaveAttached(codes.Internal)
		v.eventsWith("")
		v.pass(time.Minute)
		if events := v.eventsWith("DetachFailed"); len(events) == 0 || len(v.status().Failures) == 0 {
			v.t.Errorf("Events %q, failures %+v, want both to tell of it", events, v.status().Failures) // nobody looks at a page at three in the morning
		}
		between(v)
		v.pass(time.Minute)
		v.wantDangling(1)
		v.setKnobs(healed)
		v.pass(15 * time.Minute)
		v.wantCalls("v", "publish id-n", "unpublish id-n")
		v.wantDangling(0)
	})
}

// Observe and paused record, and only deletions: what vanishes meanwhile is detached when the driver is active again.
func TestVolumeOfAnAttachmentThatVanishesWhileNobodyWorksIsDetachedLater(t *testing.T) {
	eachInVirtualTime(t, map[string]registry.Mode{"paused": registry.ModePaused, "observe": registry.ModeObserve, "away": registry.ModeActive}, func(v *virtual, m registry.Mode) {
		v.driver.Drift.Interval = 0
		stop := v.start()
		va := v.attached()
		stop()
		v.driver.Mode = m
		v.setAway(m == registry.ModeActive)
		v.start() // it remembers nothing
		v.pass(time.Minute)
		v.volume("asked-for")
		v.attach("asked-for")
		v.stripFinalizers(va.Name)
		v.delete(va)
		v.pass(10 * time.Minute)
		v.wantCalls("v", "publish id-n")
		v.mend()
		v.mode(registry.ModeActive)
		v.pass(time.Minute)
		v.wantCalls("v", "publish id-n", "unpublish id-n")
		v.wantDangling(0)
	})
}

// A VolumeAttachment that takes over a publication of another UID publishes again: what the driver answered the first one was
// for that one's status.
func TestNewObjectOfANameThatTakesOverWhatTheOldOneLeftPublishesAgain(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.leaveAttached(codes.Internal)
		v.pass(time.Second)
		v.wantDangling(1)
		v.create(va)
		v.pass(time.Minute)
		v.setKnobs(healed)
		v.pass(time.Hour)
		v.wantAttached(va.Name)
		if len(v.get(va.Name).Status.AttachmentMetadata) == 0 {
			t.Error("the publish context is missing")
		}
		v.wantCalls("v", "publish id-n", "publish id-n")
		v.wantDangling(0)
	})
}

// One that wants the volume where it was left attached goes again: the volume was asked for elsewhere before it was detached.
func TestAttachElsewhereWaitsWhileItIsNotClearWhoHasWhatWasLeftAttached(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		v.register("other", "id-other")
		va := v.leaveAttached(codes.Internal)
		v.reply(http.StatusInternalServerError, patches("volumeattachments", va.Name)) // the next one of the name cannot begin
		v.create(va)
		v.pass(10 * time.Second)
		v.setKnobs(healed)
		v.wantDangling(1)
		v.delete(va)
		v.create(v.attachment("v", "other"))
		v.pass(time.Minute)
		v.wantCalls("v", "publish id-n", "unpublish id-n", "publish id-other")
	})
}

func TestVolumeOfAnAttachmentThatVanishedIsDetachedBeforeTheDriverIsLetGo(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour
		v.setKnobs(fakecsi.Knobs{Hang: []fakecsi.Hang{{Volume: "unseen"}}})
		v.withNode("unseen", "refused", "staying")
		stop := v.start()
		vas := v.attach("unseen", "refused", "staying")
		v.setKnobs(failing(unpublish, codes.Internal))
		v.vanish(vas[1]) // the driver refuses to detach it, once
		v.pass(time.Second)
		v.api.HoldWatches("volumeattachments") // the hub does not hear of the end of the other one
		v.stripFinalizers(vas[0].Name)
		v.delete(vas[0])
		v.setKnobs(healed)
		v.pass(time.Second)
		v.wantUnpublishes("before", 1, 1)
		stop()
		v.wantCalls("unseen", "publish id-n", "unpublish id-n")
		v.wantCalls("refused", "publish id-n", "unpublish id-n")
		v.wantCalls("staying", "publish id-n")
	})
}
