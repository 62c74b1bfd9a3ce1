package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestDriftIsConfirmedBeforeItIsActedOn(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) {
		s.Drift.Interval, s.Drift.Action = 50*time.Millisecond, registry.DriftReattach
	})
	va := w.volume("v", driver, w.node("n", driver))
	listings := func() int { return backend.Books().Methods[fakecsi.ListVolumes].Ended }
	wait := func(more int) {
		t.Helper()
		n := listings() + more
		w.waitBooks(backend, "the volumes are listed", func(b fakecsi.Books) bool { return b.Methods[fakecsi.ListVolumes].Ended >= n })
	}
	w.start()
	w.create(va)
	w.waitAttached(va)
	wait(2)
	before := listings()
	w.setKnobs(backend, fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: "v"}}})
	w.waitBooks(backend, "the volume is attached again", func(b fakecsi.Books) bool { return b.IsAttached("v", "id-n") })
	if got := listings() - before; got < 2 {
		t.Errorf("acted on after %d listings, want 2", got)
	}
	wait(4)
	if got := backend.Books().Methods[publish].Begun; got != 2 {
		t.Errorf("%d publishes, want 2: one to attach, one to repair", got)
	}
}

func TestDriftIsOnlyReportedWhenAskedTo(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Action = registry.DriftReport
		v.start()
		v.attached()
		v.lose("v")
		v.pass(time.Hour)
		v.wantPublishes("nothing is to be repaired", 1)
		if events := v.eventsWith("DriftDetected"); len(events) != 1 || v.metric("attach_hub_drift_total") != 1 {
			t.Errorf("Events %q, counted %v", events, v.metric("attach_hub_drift_total"))
		}
	})
}

// The answers to listings are made, and then held back until something has changed: first the volume that they do not have
// is attached, then its VolumeAttachment changes, twice; or it is being detached.
func TestDriftLeavesWhatChangedMeanwhileAlone(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		listing := func(n int) { // waits until it is in flight
			t.Helper()
			for range 3600 {
				if m := v.backend.Books().Methods[fakecsi.ListVolumes]; m.Begun == n && m.InFlight.Now == 1 {
					return
				}
				v.pass(time.Second)
			}
			t.Fatalf("listing %d does not begin", n)
		}
		held := fakecsi.Knobs{ReleaseAll: true, Hang: []fakecsi.Hang{{Method: fakecsi.ListVolumes, AfterEffect: true}}}
		v.setKnobs(held)
		v.withNode("v")
		v.start()
		listing(1)
		va := v.attach("v")[0]
		held.LoseAttachments = []fakecsi.VolumeNode{{Volume: "v"}}
		for n := 2; n <= 3; n++ {
			v.setKnobs(held)
			held.LoseAttachments = nil
			listing(n)
			v.update(va.Name, func(va *storagev1.VolumeAttachment) { va.Annotations["touched"] = fmt.Sprint(n) })
			v.pass(time.Second)
		}
		v.setKnobs(held)
		listing(4)
		v.wantPublishes("it has changed", 1)
		v.setKnobs(healed)
		v.pass(10 * time.Minute)
		v.wantPublishes("nothing changes any more", 2)
		v.setKnobs(hanging(unpublish))
		v.delete(va)
		v.pass(time.Second)
		v.lose("v")
		v.pass(100 * time.Second)
		v.setKnobs(healed)
		v.pass(time.Minute)
		v.wantGone(va.Name)
		v.wantPublishes("it was lost while it is deleted", 2)
	})
}

// Drift is found by nothing else.
func TestListingsThatFailAreLoggedAtMostEveryTenMinutes(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		v.setKnobs(failing(fakecsi.ListVolumes, codes.Internal))
		lines := func() int { return strings.Count(v.log.String(), "ListVolumes failed") }
		v.pass(time.Hour)
		first, listings := lines(), v.ended(fakecsi.ListVolumes)
		if first != 3 || listings != 5 {
			t.Errorf("%d lines of %d listings in an hour, want 3 of 5: the first, after 14m and after 30m:\n%s", first, listings, v.log.String())
		}
		v.pass(10 * time.Hour)
		if n := lines() - first; n != 10 {
			t.Errorf("%d lines in ten hours more, want one each hour", n)
		}
	})
}

// wantPublishes checks how many publishes have begun.
func (v *virtual) wantPublishes(when string, want int) {
	v.t.Helper()
	if n := v.begun(publish); n != want {
		v.t.Errorf("%s: %d publishes, want %d", when, n, want)
	}
}

// The storage has lost a volume, the repair fails, and then the volume is there again: it was published at every retry.
func TestRepairEndsWhenTheDriverListsTheVolumeAgain(t *testing.T) {
	eachInVirtualTime(t, map[string]bool{"at once": false, "after a restart": true}, func(v *virtual, restart bool) {
		stop := v.start()
		va := v.attached()
		v.setKnobs(failing(publish, codes.Internal))
		v.lose("v")
		v.pass(5 * time.Minute)
		v.wantAttachError(va.Name, "Internal")
		if restart {
			stop()
		}
		v.attachByHand("v", "id-n")
		if restart {
			v.start()
		}
		v.pass(5 * time.Minute)
		calls := v.begun(publish)
		v.pass(time.Hour)
		v.wantPublishes("the driver lists it where it should be", calls)
		v.wantAttached(va.Name)
	})
}

func TestContextOfARepairIsWrittenAlsoIfAListingShowsTheVolume(t *testing.T) {
	eachInVirtualTime(t, map[string]func(*virtual){
		"during the call": func(v *virtual) {
			v.setKnobs(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: publish, AfterEffect: true}}})
			v.pass(time.Minute)
			v.wantPublishes("it is being repaired", 2)
			v.setKnobs(healed)
		},
		"while its status cannot be written": func(v *virtual) {
			v.reply(http.StatusInternalServerError, patches("volumeattachments/status"))
			v.pass(time.Minute)
			v.api.Intercept(nil)
		},
	}, func(v *virtual, happen func(*virtual)) {
		v.driver.Drift.Interval = time.Second
		v.start()
		va := v.attached()
		v.setKnobs(fakecsi.Knobs{PublishContext: map[string]string{"devicePath": "new"}})
		v.lose("v")
		happen(v)
		v.pass(time.Hour)
		if got := v.get(va.Name).Status; got.AttachmentMetadata["devicePath"] != "new" {
			v.t.Errorf("status %+v; want the context of the last publish", got)
		}
		v.wantPublishes("it was repaired", 2)
	})
}

// Repairs that hang had half of the workers, all that attaches may have.
func TestRepairsThatHangDoNotHoldUpAttaches(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.setKnobs(fakecsi.AttachLatency(fakecsi.Latency{Base: 2 * time.Second})) // as in a cloud: no workers are lent
		v.withNode("w")
		v.start()
		v.many("v", 10)
		v.pass(time.Minute)
		for i := range 10 {
			name := fmt.Sprint("v", i)
			v.lose(name)
			v.setKnobs(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: publish, Volume: name}}})
		}
		v.pass(80 * time.Second) // two listings, and the repairs begin
		if n, want := len(v.backend.Books().Running), v.driver.Workers/4; n != want {
			t.Fatalf("%d calls hang, want a quarter of the workers: %d", n, want)
		}
		v.attach("w")
		v.pass(9 * time.Second)
		v.wantAttached("w-n")
		v.setKnobs(healed)
	})
}
