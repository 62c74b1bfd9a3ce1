package drift

import (
	"slices"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestPauseIsShortToConfirmAndLongAfterListingsThatFailOrTakeLong(t *testing.T) {
	const minute = time.Minute
	for name, tc := range map[string]struct {
		w        *Watch
		interval time.Duration
		want     time.Duration
	}{
		"off":             {&Watch{looked: true}, 0, 1<<63 - 1},
		"first":           {&Watch{lag: 0.5}, minute, minute / 2},
		"nothing found":   {&Watch{looked: true}, minute, minute},
		"to be confirmed": {&Watch{looked: true, confirm: true}, minute, confirmAfter},
		"to be confirmed, and the interval is short": {&Watch{looked: true, confirm: true}, time.Second, time.Second},
		"failed":                             {&Watch{looked: true, failed: 3}, minute, 8 * minute},
		"failed for long":                    {&Watch{looked: true, failed: 1000}, minute, time.Hour},
		"failed, and the interval is longer": {&Watch{looked: true, failed: 5}, 3 * time.Hour, 3 * time.Hour},
		"failed when it was to confirm":      {&Watch{looked: true, failed: 1, confirm: true}, minute, 2 * confirmAfter},
		"takes long":                         {&Watch{looked: true, took: 9 * minute}, minute, 90 * minute},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.w.Pause(registry.Settings{Drift: registry.Drift{Interval: tc.interval}}); got != tc.want {
				t.Errorf("pause %v, want %v", got, tc.want)
			}
		})
	}
}

// The volume is not listed by any listing but the first.
func TestWhatHasChangedSinceTheFirstPageIsNotMissing(t *testing.T) {
	noted := func(handle, nodeID string) []func(*storagev1.VolumeAttachment) {
		return []func(*storagev1.VolumeAttachment){attached, guarded, annotated(attach.AnnotationVolumeHandle, handle), annotated(attach.AnnotationNodeID, nodeID)}
	}
	version := func(v string) func(*storagev1.VolumeAttachment) {
		return func(va *storagev1.VolumeAttachment) { va.ResourceVersion = v }
	}
	settled := attachment(append(noted("vol-1", "id-1"), version("1"))...)
	for name, tc := range map[string]struct {
		before *storagev1.VolumeAttachment
		during func(w *world)
		want   []string // by two listings
	}{
		"nothing changes":                 {settled, func(*world) {}, []string{"va-1"}},
		"it changes":                      {settled, func(w *world) { w.put(attachment(append(noted("vol-1", "id-1"), version(time.Now().String()))...)) }, nil},
		"work begins":                     {settled, (*world).work, nil},
		"it is new":                       {attachment(guarded), func(w *world) { w.put(settled) }, nil},
		"it is being deleted":             {attachment(append(noted("vol-1", "id-1"), version("1"), deleted)...), func(*world) {}, nil},
		"its finalizer is to be restored": {attachment(attached, version("1"), annotated(attach.AnnotationVolumeHandle, "vol-1"), annotated(attach.AnnotationNodeID, "id-1")), func(*world) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, lister, tc.before, newVolume(), csiNode("id-1"))
			w.listed = csiclient.Published{}
			w.during = func() { tc.during(w) }
			w.check()
			if len(w.missing) > 0 {
				t.Errorf("missing after one listing: %v", w.missing)
			}
			if name == "it is new" {
				w.put(tc.before)
			}
			w.check()
			if !slices.Equal(w.missing, tc.want) {
				t.Errorf("missing: %q, want %q", w.missing, tc.want)
			}
		})
	}
}

// Work for it began before the first page and ended before the last: the list may be from before.
func TestWorkThatEndsDuringAListingMakesItOutOfDate(t *testing.T) {
	w := newWorld(t, lister, attachment(attached, guarded, annotated(attach.AnnotationNodeID, "id-1")), newVolume(), csiNode("id-1"))
	w.listed = csiclient.Published{}
	for range 3 {
		w.work()
		w.during = w.rest
		w.check()
	}
	if len(w.missing) > 0 {
		t.Errorf("missing: %q", w.missing)
	}
}

func TestMissingVolumeIsAttachedAgainAfterTwoMoreListingsAndReportedAfterItWasThere(t *testing.T) {
	w := newWorld(t, lister, attachment(attached, guarded, annotated(attach.AnnotationNodeID, "id-1")), newVolume(), csiNode("id-1"))
	w.drift.Action = registry.DriftReattach
	for i, p := range []csiclient.Published{{}, nil, {}, {}, {}, {"vol-1": on("id-1")}, {}, {}} {
		w.listed = p
		reported := len(w.missing)
		w.check()
		if got, want := len(w.missing) > reported, i == 2 || i == 7; got != want {
			t.Errorf("listing %d: reported %v, want %v", i, got, want)
		}
		if want := i == 2 || i == 4 || i == 7; w.isWorking() != want {
			t.Errorf("listing %d: to be attached again %v, want %v", i, w.isWorking(), want)
		}
		w.rest()
	}
}

func TestMissingVolumeThatChangesWhileItIsReportedIsNotAttachedAgain(t *testing.T) {
	va := attachment(attached, guarded, annotated(attach.AnnotationNodeID, "id-1"))
	w := newWorld(t, lister, va, newVolume(), csiNode("id-1"))
	w.drift.Action, w.listed = registry.DriftReattach, csiclient.Published{}
	w.watch.Warn = func(runtime.Object, string, string) {
		va.ResourceVersion = "2"
		deleted(va)
		w.put(va)
	}
	w.check()
	w.check()
	if va.DeletionTimestamp == nil || w.isWorking() {
		t.Errorf("deleted %v, to be attached again %v", va.DeletionTimestamp, w.isWorking())
	}
}

func TestWhatIsListedWhileItIsRepairedOrHasAnErrorIsPresent(t *testing.T) {
	noted := []func(*storagev1.VolumeAttachment){attached, guarded, annotated(attach.AnnotationVolumeHandle, "vol-1"), annotated(attach.AnnotationNodeID, "id-1")}
	failed := func(va *storagev1.VolumeAttachment) { va.Status.AttachError = &storagev1.VolumeError{Message: "no"} }
	for name, tc := range map[string]struct {
		va      *storagev1.VolumeAttachment
		working bool
		listed  csiclient.Published
		want    string
	}{
		"nothing is wrong":   {attachment(noted...), false, csiclient.Published{"vol-1": on("id-1")}, ""},
		"its repair goes on": {attachment(noted...), true, csiclient.Published{"vol-1": on("id-1")}, "found"},
		"it has an error":    {attachment(append(noted, failed)...), false, csiclient.Published{"vol-1": on("id-1")}, "forgotten"},
		"it could not be attached again, and has an error":       {attachment(append(noted, failed)...), false, csiclient.Published{"vol-1": on("id-1")}, "forgotten"},
		"it could not be attached again, and its repair goes on": {attachment(noted...), true, csiclient.Published{"vol-1": on("id-1")}, "found"},
		"it is elsewhere":         {attachment(append(noted, failed)...), false, csiclient.Published{"vol-1": on("id-2")}, ""},
		"its nodes are not known": {attachment(noted...), true, csiclient.Published{"vol-1": {Unknown: true}}, "lost"},
		"it is being deleted":     {attachment(append(noted, failed, deleted)...), false, csiclient.Published{"vol-1": on("id-1")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, lister, tc.va)
			if !strings.HasPrefix(name, "it could not be attached again") {
				w.put(newVolume(), csiNode("id-1"))
			}
			if w.listed = tc.listed; tc.working {
				w.work()
				w.table.Open(tc.va)
				w.table.SetLost(tc.va, true)
			}
			w.check()
			got := map[bool]string{true: "lost", false: ""}[w.table.Look(tc.va.Name, tc.va.UID).Lost]
			if got == "" && tc.working {
				got = "found"
			}
			if w.forgotten > 0 {
				got += "forgotten"
			}
			if got != tc.want || len(w.missing) > 0 {
				t.Errorf("got %q, want %q; missing %q", got, tc.want, w.missing)
			}
		})
	}
}

func TestDriverThatListsNothingIsNotAsked(t *testing.T) {
	for name, change := range map[string]func(*world){
		"no session":    func(w *world) { w.watch.Session = func() Session { return nil } },
		"no capability": func(w *world) { w.driver.Capabilities.ListPublishedNodes = false },
	} {
		w := newWorld(t, lister)
		change(w)
		w.check()
		if pause := w.watch.Pause(registry.Settings{Drift: registry.Drift{Interval: time.Minute}}); w.listings > 0 || pause != time.Minute {
			t.Errorf("%s: %d listings, pause %v", name, w.listings, pause)
		}
	}
}
