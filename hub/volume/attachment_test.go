package volume_test

import (
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// attachment is a VolumeAttachment of the PersistentVolume "pv of <name>".
func attachment(name string, uid types.UID, edits ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	pv := "pv of " + name
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, Finalizers: []string{"f"}},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: "node", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}
	for _, edit := range edits {
		edit(va)
	}
	return va
}

// publish has a VolumeAttachment publish its volume.
func publish(table *volume.Table, c *volume.Attachment, r attach.Record) {
	r.SecretKnown = true
	p, e := volume.Run{Plan: attach.Plan{Operation: attach.Attaching, Record: r, Publish: &csi.ControllerPublishVolumeRequest{}}}, volume.Effect{Kind: volume.Publish, Target: r.Target}
	table.Start(c, p, e)
	table.Apply(c, &p, e, volume.Outcome{Result: volume.Succeeded})
}

func TestItIsKnownWhetherAnObjectIsAsLastSeen(t *testing.T) {
	va := attachment("va", "1")
	table := openTable(1, 0, true)
	if table.IsUnchanged(va) {
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
			if unchanged := table.IsUnchanged(later); unchanged != c.want {
				t.Errorf("unchanged %v, want %v", unchanged, c.want)
			}
			table.Saw(later, true)
			if unchanged := table.IsUnchanged(later); unchanged != (later.UID == va.UID) {
				t.Errorf("unchanged after it was seen: %v", unchanged)
			}
			table.Saw(va, true)
		})
	}
}

func TestWhatIsNotedOfAnObjectIsNotNotedOfAnotherOfItsName(t *testing.T) {
	table := openTable(1, 0, true)
	isLost := func(va *storagev1.VolumeAttachment) bool { return table.Look(va.Name, va.UID).Lost }
	va, other := attachment("va", "1"), attachment("va", "2")
	table.SetLost(va, true)
	if isLost(va) {
		t.Error("something is noted of an object that was not opened")
	}
	table.Open(va)
	table.SetLost(other, true)
	if isLost(va) || isLost(other) {
		t.Error("what another object has lost is taken for its own")
	}
	table.SetLost(va, true)
	if !isLost(va) {
		t.Error("what is noted is not told")
	}
	if table.Open(other); isLost(other) {
		t.Error("the next object of the name does not start afresh")
	}
}

// A listing may have the volume again just before the call, or during it: the status must get the publish context of that call all the same.
func TestPublishOfAnAttachedVolumeLeadsToAWriteOfItsStatus(t *testing.T) {
	table, va := openTable(1, 0, true), attachment("va", "1")
	va.Status.Attached = true
	a := table.Open(va)
	table.SetLost(va, true)
	run := volume.Run{Plan: attach.Plan{Operation: attach.Attaching, Record: attach.Record{Target: at("a")}}}
	publish := volume.Effect{Kind: volume.Publish, Target: at("a")}
	table.SetLost(va, false)
	table.Start(a, run, publish)
	if !table.Look("va", "1").Lost {
		t.Error("it is not lost while it is published, so a publish that fails is not tried again")
	}
	table.SetLost(va, false)
	table.Apply(a, &run, publish, volume.Outcome{Context: map[string]string{"k": "v"}})
	if op, _ := table.Required(attach.Driver{}, va); op != attach.Attaching || table.Look("va", "1").Context == nil {
		t.Errorf("it requires %s, want the status to be written", op)
	}
}

func TestObjectOfTheSameNameStartsAfresh(t *testing.T) {
	table := openTable(10, 0, true)
	first, second := attachment("va", "1"), attachment("va", "2")
	publish(table, table.Open(first), recorded("a"))
	c := table.Open(second)
	if got := *c; got.MayBePublished() {
		t.Errorf("it begins with %+v, which is another one's", got)
	}
	wantDangling(t, table, "a")
	if again := table.Open(second); again != c {
		t.Error("the same object is known twice")
	}
}

// The object vanished while a worker had it: the next one of the name inherited its backoff and its last error.
func TestObjectOfTheSameNameStartsAfreshWhenTheOneBeforeVanishesDuringARun(t *testing.T) {
	table := openTable(10, 0, true)
	va := attachment("va", "1")
	table.Open(va)
	e := taken(t, table, "va", queue.AttachLane, only("v", "a"))
	table.Queue.Failed(e, attach.Attaching, "of the one before", diagnosis.Cause{})
	table.Gone(volume.IdentityOf(va), nil, false)
	table.Queue.Add(queue.AttachmentKey("va"), queue.AttachLane, only("v", "a"))
	table.Queue.End(e, queue.BackOff(queue.AttachLane, time.Hour))
	if got := look(t, table, "va"); got.State != queue.Ready || got.Tries != 0 || got.Error != "" || e.Retries != (queue.Retries{}) {
		t.Errorf("%+v, %+v; want it to start afresh", got, e.Retries)
	}
}

func TestMissingObjectAndItsItemEndInOneRun(t *testing.T) {
	table := openTable(10, 0, true)
	e := taken(t, table, "va", queue.AttachLane, only("v", "a"))
	table.Open(attachment("va", "1"))
	table.Missing(e.Key.Name, "")
	table.Queue.End(e, queue.Finished)
	if len(table.Attachments()) > 0 {
		t.Error("it is still known")
	}
	if left := table.Remains(); left != "" {
		t.Errorf("left at the end: %s", left)
	}
}

func TestObjectThatGetsTheNameOfAMissingOneDuringTheRunIsLookedAt(t *testing.T) {
	table := openTable(10, 0, true)
	e := taken(t, table, "va", queue.AttachLane, only("v", "a"))
	first := table.Open(attachment("va", "1"))
	table.Queue.Add(queue.AttachmentKey("va"), queue.AttachLane, only("v", "a"))
	table.Missing(e.Key.Name, "")
	table.Queue.End(e, queue.Finished)
	if got := take(t, table, queue.AttachmentKey("va")); got != e {
		t.Errorf("%+v runs, want the entry again", got)
	}
	if table.Open(attachment("va", "2")) == first {
		t.Error("it is taken for the object before")
	}
}

func TestObjectThatIsReadAsGoneIsSeenToOnce(t *testing.T) {
	table := openTable(10, 0, true)
	va, last := attachment("va", "1"), recorded("a")
	publish(table, table.Open(va), last)
	if !table.Missing(va.Name, va.UID) {
		t.Error("it is not found")
	}
	wantDangling(t, table, "a")
	u, _ := table.Dangling(at("a"))
	table.Resolve(u)
	table.Gone(volume.IdentityOf(va), &last, false) // the watch is late
	wantDangling(t, table)

	if table.Missing(va.Name, "2") || table.FinalizerWasRemoved("2") {
		t.Error("what the watch has reported already is remembered")
	}
}

func TestVolumeThatWasDetachedAndReleasedIsNotTakenForAttached(t *testing.T) {
	for name, released := range map[string]bool{"let go here": true, "not let go": false} {
		t.Run(name, func(t *testing.T) {
			table := openTable(10, 0, true)
			va := attachment("va", "1")
			c := table.Open(va)
			p, e := volume.Run{Plan: attach.Plan{Operation: attach.Detaching, Record: attach.Record{Target: at("a")}}}, volume.Effect{Kind: volume.RemoveFinalizer, Target: at("a")}
			table.Start(c, p, e)
			if !table.FinalizerWasRemoved(va.UID) {
				t.Error("the event of its deletion may come before the answer to the write")
			}
			result := volume.Failed
			if released {
				result = volume.Succeeded
			}
			table.Apply(c, &p, e, volume.Outcome{Result: result})
			if got := table.FinalizerWasRemoved(va.UID); got != released {
				t.Errorf("released: %v, want %v", got, released)
			}
			last := recorded("a") // of the last state, which has the finalizer
			table.Gone(volume.IdentityOf(va), &last, false)
			if released {
				wantDangling(t, table)
			} else {
				wantDangling(t, table, "a")
			}
			if table.FinalizerWasRemoved(va.UID) {
				t.Error("it is remembered as released after its deletion was reported")
			}
		})
	}
}

// Only the last state of the object said where the volume was: no worker had looked at it yet, or had been
// able to.
func TestLastStateCountsWhereNothingIsKnown(t *testing.T) {
	va, other, last := attachment("va", "1"), attachment("va", "2"), recorded("a")
	for name, c := range map[string]struct {
		before func(table *volume.Table)
		last   *attach.Record
		want   []string
	}{
		"not opened":                       {func(*volume.Table) {}, &last, []string{"a"}},
		"not opened, and nothing recorded": {func(*volume.Table) {}, nil, nil},
		"nothing is known":                 {func(table *volume.Table) { table.Open(va) }, &last, []string{"a"}},
		"more is known":                    {func(table *volume.Table) { publish(table, table.Open(va), recorded("b")) }, &last, []string{"b"}},
		"unpublished here":                 {func(table *volume.Table) { unpublish(table, table.Open(va), at("a"), volume.Succeeded) }, &last, nil},
		"another object of that name":      {func(table *volume.Table) { publish(table, table.Open(other), recorded("b")) }, &last, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			table := openTable(10, 0, true)
			c.before(table)
			table.Gone(volume.IdentityOf(va), c.last, false)
			wantDangling(t, table, c.want...)
		})
	}
}
