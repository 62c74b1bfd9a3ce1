package drift

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// The lists of storage systems are often late.
func TestDifferenceCountsWhenListingsInARowShowIt(t *testing.T) {
	type found = []string
	for _, tc := range []struct {
		name     string
		listings []found
		want     []found // seen in two listings in a row, after each listing
	}{
		{"seen once", []found{{"a"}}, []found{nil}},
		{"seen twice", []found{{"a"}, {"a"}}, []found{nil, {"a"}}},
		{"seen ever again", []found{{"a"}, {"a"}, {"a"}}, []found{nil, {"a"}, {"a"}}},
		{"agreed in between", []found{{"a"}, {}, {"a"}}, []found{nil, nil, nil}},
		{"each for itself", []found{{"a"}, {"b", "a"}, {"b"}}, []found{nil, {"a"}, {"b"}}},
		{"several at once", []found{{"b", "a"}, {"a", "b"}}, []found{nil, {"a", "b"}}},
		{"nothing found", []found{{}, nil}, []found{nil, nil}},
		{"gone", []found{{"a"}, {}}, []found{nil, nil}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c map[string]int
			var got []found
			for _, listing := range tc.listings {
				c = next(c, listing)
				var twice found
				for key, n := range c {
					if n >= 2 {
						twice = append(twice, key)
					}
				}
				slices.Sort(twice)
				got = append(got, twice)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("seen twice (-want +got):\n%s", diff)
			}
			if last := tc.listings[len(tc.listings)-1]; len(c) != len(last) {
				t.Errorf("kept %d of %d", len(c), len(last))
			}
		})
	}
}

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
			if got := tc.w.Pause(tc.interval); got != tc.want {
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
		"nothing changes":                 {settled, func(*world) {}, []string{"new va-1"}},
		"it changes":                      {settled, func(w *world) { w.put(attachment(append(noted("vol-1", "id-1"), version(time.Now().String()))...)) }, nil},
		"work begins":                     {settled, func(w *world) { w.working = map[string]bool{"va-1": true} }, nil},
		"it is new":                       {attachment(guarded), func(w *world) { w.put(settled) }, nil},
		"it is being deleted":             {attachment(append(noted("vol-1", "id-1"), version("1"), deleted)...), func(*world) {}, nil},
		"its finalizer is to be restored": {attachment(attached, version("1"), annotated(attach.AnnotationVolumeHandle, "vol-1"), annotated(attach.AnnotationNodeID, "id-1")), func(*world) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, lister, tc.before, volume(), csiNode("id-1"))
			w.listed = csiclient.Published{}
			w.during = func() { tc.during(w) }
			w.watch.Check(t.Context())
			if len(w.missing) > 0 {
				t.Errorf("missing after one listing: %v", w.missing)
			}
			if name == "it is new" {
				w.put(tc.before)
			}
			w.watch.Check(t.Context())
			if !slices.Equal(w.missing, tc.want) {
				t.Errorf("missing: %q, want %q", w.missing, tc.want)
			}
		})
	}
}

// Work for it began before the first page and ended before the last: the list may be from before.
func TestWorkThatEndsDuringAListingMakesItOutOfDate(t *testing.T) {
	w := newWorld(t, lister, attachment(attached, guarded, annotated(attach.AnnotationNodeID, "id-1")), volume(), csiNode("id-1"))
	w.listed = csiclient.Published{}
	for range 3 {
		w.working = map[string]bool{"va-1": true}
		w.during = func() { w.working = nil }
		w.watch.Check(t.Context())
	}
	if len(w.missing) > 0 {
		t.Errorf("missing: %q", w.missing)
	}
}

func TestMissingIsSaidAgainAfterTwoMoreListingsAndNewAfterItWasThere(t *testing.T) {
	w := newWorld(t, lister, attachment(attached, guarded, annotated(attach.AnnotationNodeID, "id-1")), volume(), csiNode("id-1"))
	for i, p := range []csiclient.Published{{}, nil, {}, {}, {}, {"vol-1": on("id-1")}, {}, {}} {
		w.listed = p
		before := len(w.missing)
		w.watch.Check(t.Context())
		if said, want := len(w.missing) > before, i == 2 || i == 4 || i == 7; said != want {
			t.Errorf("listing %d: said %v, want %v", i, said, want)
		}
	}
	if want := []string{"new va-1", "va-1", "new va-1"}; !slices.Equal(w.missing, want) {
		t.Errorf("missing: %q, want %q", w.missing, want)
	}
}

func TestWhatIsListedWhileItIsWorkedOnOrHasAnErrorIsPresent(t *testing.T) {
	noted := []func(*storagev1.VolumeAttachment){attached, guarded, annotated(attach.AnnotationVolumeHandle, "vol-1"), annotated(attach.AnnotationNodeID, "id-1")}
	failed := func(va *storagev1.VolumeAttachment) { va.Status.AttachError = &storagev1.VolumeError{Message: "no"} }
	for name, tc := range map[string]struct {
		va      *storagev1.VolumeAttachment
		working bool
		listed  csiclient.Published
		want    int
	}{
		"nothing is wrong":        {attachment(noted...), false, csiclient.Published{"vol-1": on("id-1")}, 0},
		"its repair goes on":      {attachment(noted...), true, csiclient.Published{"vol-1": on("id-1")}, 1},
		"it has an error":         {attachment(append(noted, failed)...), false, csiclient.Published{"vol-1": on("id-1")}, 1},
		"it is elsewhere":         {attachment(append(noted, failed)...), false, csiclient.Published{"vol-1": on("id-2")}, 0},
		"its nodes are not known": {attachment(noted...), true, csiclient.Published{"vol-1": {Unknown: true}}, 0},
		"it is being deleted":     {attachment(append(noted, failed, deleted)...), false, csiclient.Published{"vol-1": on("id-1")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, lister, tc.va, volume(), csiNode("id-1"))
			w.listed, w.working = tc.listed, map[string]bool{"va-1": tc.working}
			w.watch.Check(t.Context())
			if len(w.present) != tc.want || len(w.missing) > 0 {
				t.Errorf("present %q, missing %q, want %d present", w.present, w.missing, tc.want)
			}
		})
	}
}

func TestDriverThatListsNothingIsNotAsked(t *testing.T) {
	w := newWorld(t, lister)
	w.watch.Session = func() Session { return nil }
	w.watch.Check(t.Context())
	if w.listings > 0 || w.watch.Pause(time.Minute) != time.Minute {
		t.Errorf("%d listings, pause %v", w.listings, w.watch.Pause(time.Minute))
	}
}
