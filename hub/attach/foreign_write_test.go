package attach

import (
	"fmt"
	"slices"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// patchAs writes the VolumeAttachment as another field manager.
func (s *scene) patchAs(manager string, kind types.PatchType, body string, subresources ...string) {
	s.t.Helper()
	options := metav1.PatchOptions{FieldManager: manager}
	if kind == types.ApplyPatchType {
		options.Force = ptr(true)
		body = fmt.Sprintf(`{"apiVersion":"storage.k8s.io/v1","kind":"VolumeAttachment","metadata":{"name":%q%s`, s.name, body)
	}
	_, err := s.kube.StorageV1().VolumeAttachments().Patch(s.t.Context(), s.name, kind, []byte(body), options, subresources...)
	if err != nil {
		s.t.Fatalf("%s writes %s: %v", manager, body, err)
	}
}

// sidecarAttaches does what csi-attacher does: the object, then the status.
func (s *scene) sidecarAttaches() {
	s.t.Helper()
	s.patchAs("csi-attacher", types.MergePatchType,
		`{"metadata":{"finalizers":["`+finalizer+`"],"annotations":{"`+AnnotationNodeID+`":"id-1"}}}`)
	s.patchAs("csi-attacher", types.MergePatchType, `{"status":{"attached":true,"attachmentMetadata":{"a":"b"}}}`, "status")
}

func (s *scene) update(manager string, status bool, change func(*storagev1.VolumeAttachment)) {
	s.t.Helper()
	va := s.attachment()
	change(va)
	write := s.kube.StorageV1().VolumeAttachments().Update
	if status {
		write = s.kube.StorageV1().VolumeAttachments().UpdateStatus
	}
	if _, err := write(s.t.Context(), va, metav1.UpdateOptions{FieldManager: manager}); err != nil {
		s.t.Fatal(err)
	}
}

// later lets the clock of the API server, which counts whole seconds, go on to another
// one than that of the last write.
func (s *scene) later() {
	s.t.Helper()
	var last time.Time
	for _, entry := range s.attachment().ManagedFields {
		if entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	time.Sleep(time.Until(last.Add(time.Second)))
}

// hubAttaches does what the hub does with what it finds.
func (s *scene) hubAttaches() { s.attach() }

const (
	apply = types.ApplyPatchType
	merge = types.MergePatchType
)

func TestConflictingWriterIsAnotherThatWroteTheStatus(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		before func(*scene)
		write  func(*scene)
		want   string // manager, "" for none
	}{
		{"csi-attacher attaches", nil, (*scene).sidecarAttaches, "csi-attacher"},
		{"csi-attacher patches the object only", nil, func(s *scene) {
			s.patchAs("csi-attacher", merge, `{"metadata":{"finalizers":["`+finalizer+`"],"annotations":{"`+AnnotationNodeID+`":"id-1"}}}`)
		}, ""},
		{"csi-attacher writes an error", nil, func(s *scene) {
			s.patchAs("csi-attacher", merge, `{"status":{"attachError":{"message":"no","time":"2026-01-01T00:00:00Z"}}}`, "status")
		}, "csi-attacher"},
		{"csi-attacher writes another error", func(s *scene) {
			s.patchAs("csi-attacher", merge, `{"status":{"attachError":{"message":"no","time":"2026-01-01T00:00:00Z"}}}`, "status")
			s.later()
		}, func(s *scene) {
			s.patchAs("csi-attacher", merge, `{"status":{"attachError":{"message":"still no","time":"2026-01-01T00:00:01Z"}}}`, "status")
		}, "csi-attacher"},
		{"csi-attacher writes the status of what the hub attached", (*scene).hubAttaches, func(s *scene) {
			s.patchAs("csi-attacher", merge, `{"status":{"attachmentMetadata":{"a":"b"}}}`, "status")
		}, "csi-attacher"},
		{"somebody updates the status", (*scene).hubAttaches, func(s *scene) {
			s.update("kubectl-edit", true, func(va *storagev1.VolumeAttachment) { va.Status.Attached = false })
		}, "kubectl-edit"},
		{"somebody applies a status", (*scene).hubAttaches, func(s *scene) {
			s.patchAs("gitops", apply, `},"status":{"attached":false}}`, "status")
		}, "gitops"},

		{"the hub attaches", nil, (*scene).hubAttaches, ""},
		{"the hub writes an error", nil, func(s *scene) {
			must(s.t, s.SaveError(s.t.Context(), s.attachment(), Attaching, fmt.Errorf("no")))
		}, ""},
		{"the hub takes over what csi-attacher began", func(s *scene) {
			s.sidecarAttaches()
			s.markUnattached()
			s.patchAs("csi-attacher", merge, `{"status":{"attachError":{"message":"no","time":"2026-01-01T00:00:00Z"}}}`, "status")
			s.later()
		}, (*scene).hubAttaches, ""},
		{"the hub detaches what csi-attacher attached", func(s *scene) {
			s.sidecarAttaches()
			s.patchAs("operator", merge, `{"metadata":{"finalizers":["`+finalizer+`","a/b"]}}`)
			s.delete()
			s.later()
		}, func(s *scene) {
			va, err := s.RemoveFinalizer(s.t.Context(), s.attachment())
			if err == nil {
				err = s.MarkDetached(s.t.Context(), va)
			}
			must(s.t, err)
		}, ""},
		{"nothing but the deletion", (*scene).hubAttaches, (*scene).delete, ""},
		{"labels and finalizers and annotations of others", (*scene).hubAttaches, func(s *scene) {
			s.patchAs("operator", merge, `{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"},"finalizers":["`+finalizer+`","e/f","external-attacher/other"]}}`)
		}, ""},
		{"a status that nobody takes through the object", (*scene).hubAttaches, func(s *scene) {
			s.patchAs("kubectl", merge, `{"metadata":{"labels":{"a":"b"}},"status":{"attached":false}}`)
		}, ""},
		{"a write that changes nothing", (*scene).sidecarAttaches, func(s *scene) {
			s.later()
			s.sidecarAttaches()
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			if tc.before != nil {
				tc.before(s)
			}
			before := s.attachment()
			tc.write(s)
			after := s.attachment()
			prunedBefore, prunedAfter := pruned(before), pruned(after)
			for _, states := range [][2]*storagev1.VolumeAttachment{{before, after}, {prunedBefore, prunedAfter}, {before, prunedAfter}, {prunedBefore, after}} {
				manager, at := ConflictingWriter(states[0], states[1])
				if manager != tc.want {
					t.Errorf("foreign write of %q, want %q\nbefore %v\nafter %v", manager, tc.want, states[0].ManagedFields, states[1].ManagedFields)
				}
				if manager != "" && time.Since(at).Abs() > time.Hour {
					t.Errorf("written at %v, want the time of the write", at)
				}
			}
		})
	}
}

// pruned is an object as a cache may keep it.
func pruned(va *storagev1.VolumeAttachment) *storagev1.VolumeAttachment {
	va = va.DeepCopy()
	va.ManagedFields = PruneManagedFields(va.ManagedFields)
	va.Labels, va.Status.AttachmentMetadata = nil, nil
	return va
}

func TestManagersThatTheAPIServerPutsTogetherAreNoNewOnes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.sidecarAttaches()
	s.later() // the oldest managers are put together
	for i := range 12 {
		before := s.attachment()
		s.patchAs(fmt.Sprintf("m%d", i), merge, fmt.Sprintf(`{"metadata":{"labels":{"l%d":"x"}}}`, i))
		if manager, _ := ConflictingWriter(before, s.attachment()); manager != "" {
			t.Errorf("foreign write of %s, want none: labels only were written", manager)
		}
	}
	if !slices.ContainsFunc(s.attachment().ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "ancient-changes" }) {
		t.Errorf("entries %v: want csi-attacher's put together with others", s.attachment().ManagedFields)
	}
}

func TestWhatOnlyTheHubWroteTakesNoMemoryForEachVolumeAttachment(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.hubAttaches()
	s.patchAs("kubectl", merge, `{"metadata":{"labels":{"a":"b"}}}`)
	if pruned := PruneManagedFields(s.attachment().ManagedFields); pruned != nil {
		t.Errorf("%v, want nothing", pruned)
	}
}
