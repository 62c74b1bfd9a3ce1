package volume_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

func recorded(nodeID string) attach.Record {
	return attach.Record{Target: at(nodeID), Nodes: attach.SingleNode}
}

func unownedKey(nodeID string) volume.Key {
	return volume.Key{Kind: volume.UnownedKind, Target: at(nodeID)}
}

// unpublish has a claim unpublish its volume.
func unpublish(table *volume.Table, c *volume.Claim, target attach.Target, r volume.Result) {
	p, e := volume.Pass{Operation: attach.Detaching, Target: target, Calls: true}, volume.Effect{Kind: volume.Unpublish, Target: target}
	table.Start(c, p, e)
	table.Apply(c, &p, e, volume.Outcome{Result: r})
}

// unownedAt returns the node IDs of the unowned publications.
func unownedAt(table *volume.Table) []string {
	var ids []string
	for _, u := range table.UnownedAll() {
		ids = append(ids, u.Target.NodeID)
	}
	slices.Sort(ids)
	return ids
}

func wantUnowned(t *testing.T, table *volume.Table, want ...string) {
	t.Helper()
	if got := unownedAt(table); !slices.Equal(got, want) {
		t.Errorf("unowned at %v, want %v", got, want)
	}
}

func TestVanishedObjectLeavesItsPublicationUnownedAndHasItDetached(t *testing.T) {
	table := openTable(10, 0, true)
	va := attachment("va", "1")
	publish(table, table.Open(va), recorded("a"))
	table.Gone(volume.IdentityOf(va), nil)
	wantUnowned(t, table, "a")
	if known, _ := table.Known(va); known {
		t.Error("there is a claim of an object that is gone")
	}
	u, ok := table.Unowned(at("a"))
	if !ok || u.FormerOwner != volume.IdentityOf(va) || !u.Unconfirmed.IsZero() {
		t.Errorf("%+v, want it left by the VolumeAttachment", u)
	}
	if v, _ := table.Look(take(t, table, unownedKey("a")).Key); v.Lane != volume.DetachLane {
		t.Errorf("its entry is in lane %v, want detach", v.Lane)
	}
}

// Until the worker has ended nobody can say what it leaves.
func TestObjectThatVanishesWhileItsWorkerRunsLeavesItsPublicationUnownedWhenTheRunEnds(t *testing.T) {
	for name, end := range map[string]func(*volume.Table, *volume.Entry){
		"done":      func(table *volume.Table, e *volume.Entry) { table.Done(e) },
		"backs off": func(table *volume.Table, e *volume.Entry) { table.DoneFor(e, volume.AttachLane, time.Hour) },
		"postponed": func(table *volume.Table, e *volume.Entry) { table.Postpone(e, e.Lane(), time.Hour) },
	} {
		for _, missing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, found missing %v", name, missing), func(t *testing.T) {
				table := openTable(10, 0, true)
				va := attachment("va", "1")
				e := taken(t, table, va.Name, volume.AttachLane, only("v", "a"))
				c := table.Open(va)
				if missing {
					table.Missing(va.Name)
				} else {
					table.Gone(volume.IdentityOf(va), nil)
				}
				publish(table, c, recorded("a"))
				wantUnowned(t, table)
				if !table.OwesDetach() {
					t.Error("nothing is owed, and the worker may leave something")
				}
				attach := volume.ClaimKey("elsewhere")
				table.Add(attach, volume.AttachLane, only("v", "b"))
				if got := started(table); len(got) > 0 {
					t.Errorf("%v began before it is known what is left", got)
				}
				end(table, e)
				wantUnowned(t, table, "a")
				// The entry of the object looks once more: another one may have its name.
				got := map[volume.Key]*volume.Entry{}
				for e := table.Take(time.Now()); e != nil; e = table.Take(time.Now()) {
					got[e.Key] = e
					if e.Key == volume.ClaimKey("va") {
						table.Done(e)
					}
				}
				detach := got[unownedKey("a")]
				if detach == nil || got[attach] != nil {
					t.Fatalf("%v began, want the detach, and not the attach elsewhere", got)
				}
				table.Resolve(at("a"))
				table.Done(detach)
				take(t, table, attach)
			})
		}
	}
}

func TestPublishAtTheTargetTakesAnUnownedPublicationOver(t *testing.T) {
	for name, running := range map[string]bool{"before its detach began": false, "while its detach runs": true} {
		t.Run(name, func(t *testing.T) {
			table := openTable(10, 0, true)
			table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded("a"), time.Now())
			var detach *volume.Entry
			if running {
				detach = take(t, table, unownedKey("a"))
			}
			va := attachment("va", "1")
			publish(table, table.Open(va), recorded("a"))
			wantUnowned(t, table)
			if table.Has(unownedKey("a")) != running {
				t.Error("its detach is still to be done")
			}
			if running {
				table.Done(detach)
			}
			if left := table.Remains(); left != "" {
				t.Errorf("left at the end: %s", left)
			}
			table.Gone(volume.IdentityOf(va), nil)
			wantUnowned(t, table, "a")
		})
	}
}

func TestPublishElsewhereTakesNoUnownedPublicationOver(t *testing.T) {
	table := openTable(10, 0, true)
	table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded("a"), time.Now())
	publish(table, table.Open(attachment("va", "1")), recorded("b"))
	wantUnowned(t, table, "a")
}

func TestUnpublishAtTheTargetResolvesAnUnownedPublicationUnlessItFails(t *testing.T) {
	for result, want := range map[volume.Result][]string{volume.Succeeded: {"b"}, volume.Failed: {"a", "b"}, volume.NotDone: {"a", "b"}} {
		t.Run(fmt.Sprint(result), func(t *testing.T) {
			table := openTable(10, 0, true)
			for _, id := range []string{"a", "b"} {
				table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded(id), time.Now())
			}
			unpublish(table, table.Open(attachment("va", "1")), at("a"), result)
			wantUnowned(t, table, want...)
		})
	}
}

func TestVolumeThatWasDetachedAndLetGoIsNotTakenForAttached(t *testing.T) {
	for name, released := range map[string]bool{"let go here": true, "not let go": false} {
		t.Run(name, func(t *testing.T) {
			table := openTable(10, 0, true)
			va := attachment("va", "1")
			c := table.Open(va)
			p, e := volume.Pass{Operation: attach.Detaching, Target: at("a")}, volume.Effect{Kind: volume.Release, Target: at("a")}
			table.Start(c, p, e)
			if !table.WasReleased(va.UID) {
				t.Error("the event of its deletion may come before the answer to the write")
			}
			result := volume.Failed
			if released {
				result = volume.Succeeded
			}
			table.Apply(c, &p, e, volume.Outcome{Result: result})
			if got := table.WasReleased(va.UID); got != released {
				t.Errorf("released: %v, want %v", got, released)
			}
			last := recorded("a") // of the last state, which has the finalizer
			table.Gone(volume.IdentityOf(va), &last)
			if released {
				wantUnowned(t, table)
			} else {
				wantUnowned(t, table, "a")
			}
			if table.WasReleased(va.UID) {
				t.Error("it is remembered as released after its deletion was reported")
			}
		})
	}
}

// Nothing but the last state of the object told of the volume: the worker had not come to look at it,
// or had not been able to.
func TestWhatTheLastStateTellsIsNotLostOnARecordThatKnowsNothing(t *testing.T) {
	va, other, last := attachment("va", "1"), attachment("va", "2"), recorded("a")
	for name, c := range map[string]struct {
		before func(table *volume.Table)
		last   *attach.Record
		want   []string
	}{
		"no claim":                       {func(*volume.Table) {}, &last, []string{"a"}},
		"no claim, and nothing recorded": {func(*volume.Table) {}, nil, nil},
		"a claim that knows nothing":     {func(table *volume.Table) { table.Open(va) }, &last, []string{"a"}},
		"a claim that knows more":        {func(table *volume.Table) { publish(table, table.Open(va), recorded("b")) }, &last, []string{"b"}},
		"unpublished here":               {func(table *volume.Table) { unpublish(table, table.Open(va), at("a"), volume.Succeeded) }, &last, nil},
		"another object of that name":    {func(table *volume.Table) { publish(table, table.Open(other), recorded("b")) }, &last, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			table := openTable(10, 0, true)
			c.before(table)
			table.Gone(volume.IdentityOf(va), c.last)
			wantUnowned(t, table, c.want...)
		})
	}
}

func TestObjectThatIsReadAsGoneIsSeenToOnce(t *testing.T) {
	table := openTable(10, 0, true)
	va, last := attachment("va", "1"), recorded("a")
	publish(table, table.Open(va), last)
	table.ReadGone(volume.IdentityOf(va), true)
	wantUnowned(t, table, "a")
	table.Resolve(at("a"))
	table.Gone(volume.IdentityOf(va), &last) // the watch is late
	wantUnowned(t, table)

	table.ReadGone(volume.Identity{Name: "va", UID: "2"}, false)
	if table.WasReleased("2") {
		t.Error("what the watch has reported already is remembered")
	}
}

func TestObjectOfTheSameNameStartsAfresh(t *testing.T) {
	table := openTable(10, 0, true)
	first, second := attachment("va", "1"), attachment("va", "2")
	publish(table, table.Open(first), recorded("a"))
	c := table.Open(second)
	if got := table.Believed(c); got.MayBePublished() {
		t.Errorf("it begins with %+v, which is another one's", got)
	}
	wantUnowned(t, table, "a")
	if again := table.Open(second); again != c {
		t.Error("the same object has another claim")
	}
}

// The object vanished while a worker had it: the next one of the name inherited its backoff and its last error.
func TestObjectOfTheSameNameStartsAfreshWhenTheOneBeforeVanishesDuringARun(t *testing.T) {
	table := openTable(10, 0, true)
	va := attachment("va", "1")
	table.Open(va)
	e := taken(t, table, "va", volume.AttachLane, only("v", "a"))
	e.Retries.Failed(attach.Attaching, time.Now())
	table.NoteFailure(e, 1, "of the one before", diagnosis.Cause{})
	table.Gone(volume.IdentityOf(va), nil)
	table.Add(volume.ClaimKey("va"), volume.AttachLane, only("v", "a"))
	table.DoneFor(e, volume.AttachLane, time.Hour)
	if got := look(t, table, "va"); got.State != volume.Ready || got.Failures != 0 || got.Error != "" || e.Retries != (volume.Retries{}) {
		t.Errorf("%+v, %+v; want it to start afresh", got, e.Retries)
	}
}

func TestMissingObjectEndsItsClaimAndItsEntry(t *testing.T) {
	table := openTable(10, 0, true)
	table.Open(attachment("va", "1"))
	table.Add(volume.ClaimKey("va"), volume.AttachLane, only("v", "a"))
	table.Missing("va")
	if known, _ := table.Known(attachment("va", "1")); known {
		t.Error("its claim has not ended")
	}
	if left := table.Remains(); left != "" {
		t.Errorf("left at the end: %s", left)
	}
}

// Somebody else works for the driver, and may die before it sees what has vanished.
func TestStandbyRemembersWhatAVanishedAttachmentMayHaveLeftAttached(t *testing.T) {
	table := volume.NewTable("f")
	table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0", Node: "node"}, recorded("a"), time.Now())
	if table.OwesDetach() {
		t.Error("it is owed by this process, and another has to see to it")
	}
	table.Forget(time.Now()) // what happens when a driver is taken over
	table.Begin(1)
	table.OpenLanes()
	if got := started(table); len(got) > 0 {
		t.Errorf("%v began before the VolumeAttachments were read", got)
	}
	table.Confirm()
	if !table.OwesDetach() {
		t.Error("it is not owed by this process")
	}
	take(t, table, unownedKey("a"))
}

func TestStandbyForgetsWhatAnotherMustHaveSeenToByNow(t *testing.T) {
	for name, forget := range map[string]func(table *volume.Table, now time.Time){
		"when something else vanishes": func(table *volume.Table, now time.Time) {
			table.ObserveDeletion(volume.Identity{Name: "other", UID: "1"}, attach.Record{Target: attach.Target{VolumeHandle: "w", NodeID: "z"}}, now)
			table.Resolve(attach.Target{VolumeHandle: "w", NodeID: "z"})
		},
		"when it takes the driver over": func(table *volume.Table, now time.Time) { table.Forget(now) },
	} {
		for _, confirmed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, confirmed %v", name, confirmed), func(t *testing.T) {
				table, began := volume.NewTable("f"), time.Now()
				table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded("a"), began)
				if confirmed {
					table.Confirm()
				}
				forget(table, began.Add(24*time.Hour))
				wantUnowned(t, table, "a")
				forget(table, began.Add(24*time.Hour+time.Minute)) // as often as it is looked for
				if confirmed {
					wantUnowned(t, table, "a") // nobody else knows of it
					return
				}
				wantUnowned(t, table)
			})
		}
	}
}

// What vanished at first counts: it is that which nobody has seen to for so long.
func TestWhatVanishesOnceMoreAtATargetIsObservedOnce(t *testing.T) {
	table, began := volume.NewTable("f"), time.Now()
	table.ObserveDeletion(volume.Identity{Name: "first", UID: "1"}, recorded("a"), began)
	table.ObserveDeletion(volume.Identity{Name: "second", UID: "2"}, recorded("a"), began.Add(time.Hour))
	if u, _ := table.Unowned(at("a")); u.FormerOwner.Name != "first" || u.Unconfirmed != began {
		t.Errorf("left by %s, unconfirmed since %v; want the first", u.FormerOwner.Name, u.Unconfirmed.Sub(began))
	}
}

// The lease was lost, and another process had it, before a worker looked.
func TestWhatVanishedJustBeforeTheLeaseWasLostIsNotForgotten(t *testing.T) {
	table := openTable(10, 0, true)
	for name, id := range map[string]string{"left": "a", "detached": "", "exists": "c"} {
		va := attachment(name, "uid of left")
		e := taken(t, table, name, volume.AttachLane, only("v of "+name, id))
		_ = e // its worker does not end
		c := table.Open(va)
		if id != "" {
			publish(table, c, recorded(id))
		}
		if name != "exists" {
			table.Gone(volume.IdentityOf(va), nil)
		}
	}
	now := time.Now()
	table.Close()
	table.Forget(now)
	wantUnowned(t, table, "a")
	if u, _ := table.Unowned(at("a")); u.Unconfirmed != now {
		t.Errorf("unconfirmed since %v, want since the lease was lost: another process may have seen to it", u.Unconfirmed)
	}
	if names := table.Claims(); len(names) > 0 {
		t.Errorf("%v is remembered besides", names)
	}
}

func TestUnownedPublicationWithoutAnEntryIsAskedForAgain(t *testing.T) {
	table := openTable(10, 0, true)
	table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded("a"), time.Now())
	if n := table.Requeue(); n != 0 {
		t.Errorf("%d were asked for, which have entries", n)
	}
	table.Done(take(t, table, unownedKey("a"))) // and has forgotten to resolve it
	if n := table.Requeue(); n != 1 {
		t.Errorf("%d were asked for, want 1", n)
	}
	take(t, table, unownedKey("a"))
}

func TestAttachOfAVolumeThatIsLeftElsewhereWaitsForTheDetachAndForNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		place volume.Place
		want  bool
	}{
		"elsewhere":                  {only("v", "b"), true},
		"there":                      {only("v", "a"), false},
		"another volume":             {only("w", "b"), false},
		"a multi-node one elsewhere": {shared("v", "b"), false},
	} {
		t.Run(name, func(t *testing.T) {
			table := openTable(10, 0, true)
			table.ShutLanes()
			table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded("a"), time.Now())
			table.Add(volume.ClaimKey("next"), volume.AttachLane, c.place)
			got := look(t, table, "next").Wait
			if waits := got == (volume.Wait{Kind: volume.WaitDetach, Detach: unownedKey("a")}); waits != c.want {
				t.Errorf("%+v, waits for the detach: %v, want %v", got, waits, c.want)
			}
		})
	}
}

// An unowned publication of a multi-node volume is detached beside others only if it was surely
// published as one.
func TestUnownedPublicationIsSharedIfItWasPublishedSo(t *testing.T) {
	for nodes, want := range map[attach.NodeMode]bool{attach.MultiNode: true, attach.SingleNode: false, attach.UnknownNodes: false} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			table := openTable(10, 0, true)
			taken(t, table, "other", volume.AttachLane, shared("v", "b"))
			table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, attach.Record{Target: at("a"), Nodes: nodes}, time.Now())
			if got := table.Take(time.Now()) != nil; got != want {
				t.Errorf("detached beside the other: %v, want %v", got, want)
			}
		})
	}
}

// It wants the volume at another target, and the driver does not unpublish it at the previous one.
func TestClaimThatMovesOnLeavesItsPublicationUnowned(t *testing.T) {
	table := openTable(10, 0, true)
	va := attachment("va", "1")
	c := table.Open(va)
	publish(table, c, recorded("a"))
	p, e := volume.Pass{Operation: attach.Attaching, Target: at("b")}, volume.Effect{Kind: volume.Disown, Target: at("a")}
	table.Start(c, p, e)
	table.Apply(c, &p, e, volume.Outcome{})
	wantUnowned(t, table, "a")
	id, another := volume.IdentityOf(va), volume.IdentityOf(attachment("va", "2"))
	if !table.HasDisowned(id, at("a")) || table.HasDisowned(another, at("a")) || table.HasDisowned(id, at("b")) {
		t.Error("it is not known who has left what")
	}
	table.Restore(c, recorded("a")) // its object still says so
	if got := table.Believed(c); got.MayBePublished() {
		t.Errorf("%+v, want it to own nothing: it has left that", got)
	}
	table.Restore(c, recorded("b"))
	if got := table.Believed(c); got.Target != at("b") {
		t.Errorf("%+v, want what its object records", got)
	}
}

func TestFinalizerOfAPersistentVolumeIsWithheldAsLongAsSomethingMayBeLeftButNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stuckAfter = time.Hour
		table := openTable(10, 0, true)
		check := func(when string, claimed, published bool) {
			t.Helper()
			if c, p := table.Withholds("pv of va", "v", stuckAfter, time.Now()); c != claimed || p != published {
				t.Errorf("%s: claimed %v, published %v; want %v and %v", when, c, p, claimed, published)
			}
			if c, p := table.Withholds("another", "w", stuckAfter, time.Now()); c || p {
				t.Errorf("%s: another PersistentVolume is withheld", when)
			}
		}
		check("at first", false, false)
		va := attachment("va", "1")
		e := taken(t, table, "va", volume.AttachLane, only("v", "a"))
		publish(table, table.Open(va), recorded("a"))
		time.Sleep(2 * stuckAfter)
		check("while it is attached", true, false)
		table.Gone(volume.IdentityOf(va), nil)
		time.Sleep(stuckAfter - 1)
		check("while its worker runs", true, false)
		time.Sleep(1)
		check("when that takes too long", false, false)
		table.Done(e)
		check("when it is unowned", false, true)
		time.Sleep(stuckAfter - 1)
		check("still", false, true)
		time.Sleep(1)
		check("when that takes too long", false, false)
		wantUnowned(t, table, "a")
	})
}

func TestDetachOfAnUnownedPublicationIsGivenUpOnlyAfterDefinitiveAnswersForLong(t *testing.T) {
	const stuckAfter = time.Hour
	notFound, invalid, other := status.Error(codes.NotFound, "volume"), status.Error(codes.InvalidArgument, "node"), status.Error(codes.Unavailable, "later")
	times := func(n int, err error) []error { return slices.Repeat([]error{err}, n) }
	for name, c := range map[string]struct {
		errs      []error       // one at a time, ten minutes apart
		noSecret  bool          // the secret of the calls is not known
		connected time.Duration // before the first
		want      bool
	}{
		"not found for long":                      {times(10, notFound), false, 0, true},
		"not found, but not often enough":         {times(9, notFound), false, 0, false},
		"a driver that has just started":          {times(10, notFound), false, -80 * time.Minute, false},
		"a driver that restarts for a day":        {times(150, notFound), false, -1490 * time.Minute, true},
		"invalid, with the secret":                {times(10, invalid), false, 0, true},
		"invalid, without the secret":             {times(10, invalid), true, 0, false},
		"other errors":                            {times(100, other), false, 0, false},
		"another error between":                   {append(append(times(9, notFound), other), times(9, notFound)...), false, 0, false},
		"another error, and definitive ones then": {append(times(9, other), times(10, notFound)...), false, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			table := openTable(1, 0, true)
			r := recorded("a")
			r.SecretKnown = !c.noSecret
			begin := time.Now()
			table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, r, begin)
			now := begin
			var u volume.Unowned
			for _, err := range c.errs {
				u, _ = table.UnownedFailed(r.Target, err, now)
				now = now.Add(10 * time.Minute)
			}
			now = now.Add(-10 * time.Minute)
			if got := u.Hopeless(stuckAfter, begin.Add(-c.connected), now); got != c.want || u.Failures != len(c.errs) {
				t.Errorf("hopeless: %v after %d failures, want %v after %d", got, u.Failures, c.want, len(c.errs))
			}
		})
	}
}

func TestItIsKnownForHowLongAnUnownedPublicationWaitsForItsOwnerToBecomeClear(t *testing.T) {
	table, begin, unclear := openTable(1, 0, true), time.Now(), errors.New("unclear")
	table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded("a"), begin)
	table.UnownedWaits(at("a"), unclear, begin)
	if got := table.UnownedWaits(at("a"), unclear, begin.Add(time.Minute)); got != time.Minute {
		t.Errorf("waits for %v, want 1m", got)
	}
	if u, _ := table.Unowned(at("a")); u.Error != "unclear" || u.Failures != 0 {
		t.Errorf("error %q after %d failures, want why it waits, which is no failure", u.Error, u.Failures)
	}
	table.UnownedFailed(at("a"), errors.New("failed"), begin.Add(2*time.Minute)) // it was tried
	if got := table.UnownedWaits(at("a"), unclear, begin.Add(3*time.Minute)); got != 0 {
		t.Errorf("waits for %v, want it counted from the last try", got)
	}
}

func TestClaimTellsWhetherItsObjectIsAsLastSeen(t *testing.T) {
	va := attachment("va", "1")
	table := openTable(1, 0, true)
	if known, unchanged := table.Known(va); known || unchanged {
		t.Error("it is known before it was opened")
	}
	table.Open(va)
	for name, c := range map[string]struct {
		change func(*storagev1.VolumeAttachment)
		want   bool // unchanged
	}{
		"its error":           {func(va *storagev1.VolumeAttachment) { va.Status.AttachError = &storagev1.VolumeError{Message: "m"} }, true},
		"a label":             {func(va *storagev1.VolumeAttachment) { va.Labels = map[string]string{"a": "b"} }, true},
		"another's finalizer": {func(va *storagev1.VolumeAttachment) { va.Finalizers = append(va.Finalizers, "other") }, true},
		"its finalizer":       {func(va *storagev1.VolumeAttachment) { va.Finalizers = nil }, false},
		"its UID":             {func(va *storagev1.VolumeAttachment) { va.UID = "2" }, false},
		"its deletion":        {func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, false},
		"attached":            {func(va *storagev1.VolumeAttachment) { va.Status.Attached = true }, false},
		"its note": {func(va *storagev1.VolumeAttachment) {
			va.Annotations = map[string]string{attach.AnnotationNodeID: "id"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			later := va.DeepCopy()
			c.change(later)
			if known, unchanged := table.Known(later); !known || unchanged != c.want {
				t.Errorf("known %v, unchanged %v; want true and %v", known, unchanged, c.want)
			}
			table.Saw(later)
			if _, unchanged := table.Known(later); unchanged != (later.UID == va.UID) {
				t.Errorf("unchanged after it was seen: %v", unchanged)
			}
			table.Saw(va)
		})
	}
}

func TestWhatIsNotedOfAnObjectIsNotNotedOfAnotherOfItsName(t *testing.T) {
	table := openTable(1, 0, true)
	va, other := attachment("va", "1"), attachment("va", "2")
	table.SetLost(va, true)
	if table.IsLost(va) {
		t.Error("something is noted without a claim")
	}
	table.Open(va)
	table.SetLost(other, true)
	if table.IsLost(va) || table.IsLost(other) {
		t.Error("what another object has lost is taken for its own")
	}
	table.SetLost(va, true)
	if !table.IsLost(va) || !slices.Equal(table.LostNames(), []string{"va"}) {
		t.Error("what is noted is not told")
	}
	if table.Open(other); table.IsLost(other) || len(table.LostNames()) > 0 {
		t.Error("the next object of the name does not start afresh")
	}
}
