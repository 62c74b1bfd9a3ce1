package attach_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const (
	blockDriver  = "block.example.com"
	madeByPeople = "made-by-people"
)

var (
	block  = attach.Driver{Name: blockDriver, Capabilities: csiclient.Capabilities{PublishUnpublish: true, ListPublishedNodes: true}}
	noon   = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	onNode = &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node"},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: blockDriver, NodeID: "id"}}}}
)

// attachmentName is the name that kube-controller-manager gives a VolumeAttachment.
func attachmentName(handle string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+blockDriver+"node")))
}

// leftAttached returns a VolumeAttachment that was created at noon, is attached and is being
// deleted. csi-attacher notes no handle.
func leftAttached(name, noted string) *storagev1.VolumeAttachment {
	volume := "pv"
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid", CreationTimestamp: metav1.NewTime(noon), DeletionTimestamp: new(metav1.NewTime(noon.Add(time.Hour))),
			Finalizers: []string{attach.Finalizer(blockDriver)}, Annotations: map[string]string{attach.AnnotationNodeID: "id"}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: blockDriver, NodeName: "node",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	}
	if noted != "" {
		va.Annotations[attach.AnnotationVolumeHandle] = noted
	}
	return va
}

func persistentVolume(handle, secret string, age time.Duration) *corev1.PersistentVolume {
	pv := testbed.PersistentVolume{Name: "pv", Driver: blockDriver, Handle: handle}
	if secret != "" {
		pv.Secret = &corev1.SecretReference{Namespace: "default", Name: secret}
	}
	built := pv.Build()
	built.UID, built.CreationTimestamp = "pv-uid", metav1.NewTime(noon.Add(-age))
	return built
}

func volumeOf(handle, secret string, age time.Duration) *attach.Volume {
	return attach.VolumeOf(persistentVolume(handle, secret, age))
}

// csi-attacher notes no handle, and the PersistentVolume was deleted by force and made anew with another one: its
// volume was detached, which nobody had asked for.
func TestVolumeOfARecreatedPersistentVolumeIsNotDetachedInPlaceOfTheOldOne(t *testing.T) {
	for name, tc := range map[string]struct {
		va   *storagev1.VolumeAttachment
		age  time.Duration // of the PersistentVolume, when the VolumeAttachment was created
		want string        // handle that is detached; "" if none is
	}{
		"recreated":                             {leftAttached(attachmentName("old"), ""), -time.Minute, ""},
		"recreated, handle noted":               {leftAttached(attachmentName("old"), "old"), -time.Minute, "old"},
		"recreated with the same handle":        {leftAttached(attachmentName("new"), ""), -time.Minute, "new"},
		"older than the VolumeAttachment":       {leftAttached(attachmentName("old"), ""), time.Minute, "new"},
		"as old as the VolumeAttachment":        {leftAttached(attachmentName("old"), ""), 0, "new"},
		"the VolumeAttachment's name is no sum": {leftAttached(madeByPeople, ""), -time.Minute, "new"},
	} {
		t.Run(name, func(t *testing.T) {
			inputs := attach.Inputs{VolumeAttachment: tc.va, PersistentVolume: volumeOf("new", "", tc.age), CSINode: onNode}
			recorded, isRecorded := block.Recorded(inputs)
			last, isLast := block.LastRecorded(inputs)
			plan, err := block.Decide(inputs)
			if tc.want != "" {
				if err != nil || plan.Target.VolumeHandle != tc.want || recorded.Target.VolumeHandle != tc.want {
					t.Errorf("detach of %q, %v, believed attached: %q; want %q", plan.Target.VolumeHandle, err, recorded.Target.VolumeHandle, tc.want)
				}
				return
			}
			if err == nil {
				t.Fatalf("detach of %q, want an error", plan.Target.VolumeHandle)
			}
			for _, part := range []string{`persistentvolume "pv"`, "recreated", `"new"`, attach.AnnotationVolumeHandle, `node "node"`, attach.Finalizer(blockDriver)} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %s", err, part)
				}
			}
			if isRecorded || isLast {
				t.Errorf("believed attached: %q and %q, want none", recorded.Target, last.Target)
			}
		})
	}
}

// The last state of a VolumeAttachment that says attached and has no note is believed by its PersistentVolume.
func TestVolumeOfARecreatedPersistentVolumeIsNotBelievedToBeLeftAttached(t *testing.T) {
	va := leftAttached(attachmentName("old"), "")
	va.Finalizers, va.Annotations = nil, nil
	for handle, want := range map[string]bool{"old": true, "new": false} {
		_, recorded := block.LastRecorded(attach.Inputs{VolumeAttachment: va, PersistentVolume: volumeOf(handle, "", -time.Minute), CSINode: onNode})
		if recorded != want {
			t.Errorf("handle %s: may be attached: %v, want %v", handle, recorded, want)
		}
	}
}

// The VolumeAttachment of the new volume was let go without a call: the old one was taken for its owner.
func TestAttachmentOfTheOldVolumeDoesNotOwnThatOfTheRecreatedPersistentVolume(t *testing.T) {
	va := leftAttached(attachmentName("old"), "")
	va.DeletionTimestamp = nil
	inputs := attach.Inputs{VolumeAttachment: va, PersistentVolume: volumeOf("new", "", -time.Minute), CSINode: onNode}
	if may, _ := block.NamesTarget(inputs, attach.Target{VolumeHandle: "new", NodeID: "id"}); may {
		t.Error("it may want the new volume, want not")
	}
	if may, surely := block.NamesTarget(inputs, attach.Target{VolumeHandle: "old", NodeID: "id"}); !may || surely {
		t.Errorf("may want the old volume: %v, surely: %v; want only that it may", may, surely)
	}
}

// It was taken for lost, because a listing had the old volume and not the one that the PersistentVolume names now: that one was
// attached in its place.
func TestAttachedVolumeIsNotLostBecauseItsPersistentVolumeWasRecreated(t *testing.T) {
	for name, va := range map[string]*storagev1.VolumeAttachment{
		"handle noted":     leftAttached(madeByPeople, "old"),
		"handle not noted": leftAttached(attachmentName("old"), ""),
	} {
		t.Run(name, func(t *testing.T) {
			va.DeletionTimestamp = nil
			inputs := attach.Inputs{VolumeAttachment: va, PersistentVolume: volumeOf("new", "", -time.Minute), CSINode: onNode}
			inputs.Lost = true
			if plan, err := block.Decide(inputs); err == nil || !strings.Contains(err.Error(), "recreated") {
				t.Errorf("publish of %q, %v; want an error", plan.Publish.GetVolumeId(), err)
			}
			inputs.PersistentVolume = volumeOf("old", "", -time.Minute)
			if plan, err := block.Decide(inputs); err != nil || plan.Publish.GetVolumeId() != "old" {
				t.Errorf("publish of %q, %v; want the old volume", plan.Publish.GetVolumeId(), err)
			}
		})
	}
}

// The secret of one volume must not reach the calls for another one.
func TestSecretOfARecreatedPersistentVolumeIsNotTakenForTheOldVolume(t *testing.T) {
	for handle, known := range map[string]bool{"old": true, "new": false} {
		inputs := attach.Inputs{VolumeAttachment: leftAttached(madeByPeople, "old"), PersistentVolume: volumeOf(handle, "secret", -time.Minute), CSINode: onNode}
		plan, err := block.Decide(inputs)
		if err != nil || plan.Target.VolumeHandle != "old" || (plan.SecretRef != nil) != known {
			t.Errorf("PersistentVolume with handle %s: detach of %q with secret %v, %v; want a secret: %v", handle, plan.Target.VolumeHandle, plan.SecretRef, err, known)
		}
		recorded, _ := block.Recorded(inputs)
		unnoted := leftAttached(madeByPeople, "old")
		unnoted.Finalizers, unnoted.Annotations = nil, map[string]string{attach.AnnotationVolumeHandle: "old"}
		inputs.VolumeAttachment = unnoted
		last, _ := block.LastRecorded(inputs)
		for what, p := range map[string]attach.Record{"finalizer": recorded, "status only": last} {
			if p.Target != (attach.Target{VolumeHandle: "old", NodeID: "id"}) || p.SecretKnown != known || (p.SecretRef != nil) != known {
				t.Errorf("PersistentVolume with handle %s, %s: believed attached %q with secret %v, known %v; want %v", handle, what, p.Target, p.SecretRef, p.SecretKnown, known)
			}
		}
	}
}

func TestDetachGoesWithTheSecretOfThePublishWhateverThePersistentVolumeNamesNow(t *testing.T) {
	for name, tc := range map[string]struct {
		now  *corev1.PersistentVolume // nil: it is gone
		lost bool                     // the secret of the publish is deleted
		want string
	}{
		"unchanged":                         {persistentVolume("old", "first", time.Minute), false, "one"},
		"another secret":                    {persistentVolume("old", "second", -time.Minute), false, "one"},
		"no secret":                         {persistentVolume("old", "", -time.Minute), false, "one"},
		"another volume":                    {persistentVolume("new", "second", -time.Minute), false, "one"},
		"gone":                              {nil, false, "one"},
		"unchanged, secret deleted":         {persistentVolume("old", "first", time.Minute), true, "one"},
		"another secret, first one deleted": {persistentVolume("old", "second", -time.Minute), true, "two"},
		"another volume, secret deleted":    {persistentVolume("new", "second", -time.Minute), true, "one"},
		"no such secret, first one deleted": {persistentVolume("old", "third", -time.Minute), true, "one"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutside(t)
			cluster, first := testbed.NewCluster(o.kube), testbed.Secret{Name: "first", Data: map[string]string{"key": "one"}}
			must(t, cluster.Create(t.Context(), first, testbed.Secret{Name: "second", Data: map[string]string{"key": "two"}}))
			o.create(func(va *storagev1.VolumeAttachment, pv *corev1.PersistentVolume) {
				va.Spec.Attacher, va.Spec.NodeName = blockDriver, "node"
				*pv = *persistentVolume("old", "first", time.Minute)
			})
			va, pv, attacher := o.attachment(), o.volume(), o.attacher()
			plan, err := block.Decide(attach.Inputs{VolumeAttachment: va, PersistentVolume: attach.VolumeOf(pv), CSINode: onNode})
			must(t, err)
			published, secrets := plan.Record, map[string]string{"key": "one"}
			must(t, errors.Join(attacher.AddFinalizers(t.Context(), plan), publishOnly(t, attacher, plan, secrets)))
			if tc.lost {
				must(t, cluster.Delete(t.Context(), first))
			}
			o.delete()
			if plan, err = block.Decide(attach.Inputs{VolumeAttachment: o.attachment(), PersistentVolume: attach.VolumeOf(tc.now), CSINode: onNode}); err != nil {
				t.Fatal(err)
			}
			got, err := attacher.UnpublishSecrets(t.Context(), plan.Target, published, plan.SecretRef, secrets)
			if err != nil || got["key"] != tc.want {
				t.Errorf("secret of the detach %q, %v, want %q", got["key"], err, tc.want)
			}
		})
	}
}

func publishOnly(t *testing.T, a attach.Attacher, plan attach.Plan, secrets map[string]string) error {
	_, err := a.Publish(t.Context(), plan, secrets)
	return err
}
