package attach

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// takesNothing is a write that the API server notes without a time.
const takesNothing = "somebody applies the status that is there"

const (
	apply  = types.ApplyPatchType
	merge  = types.MergePatchType
	patchJ = types.JSONPatchType
)

func TestForeignWriteIsWhatOthersWriteOfAnAttachersFields(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		before func(*scene)
		write  func(*scene)
		want   string // manager and what, "" for none
	}{
		{"csi-attacher attaches", nil, (*scene).sidecarAttaches, "csi-attacher status"},
		{"csi-attacher patches the object only", nil, func(s *scene) {
			s.patchAs("csi-attacher", merge, `{"metadata":{"finalizers":["`+finalizer+`"],"annotations":{"`+AnnotationNodeID+`":"id-1"}}}`)
		}, "csi-attacher finalizer"},
		{"csi-attacher writes an error", nil, func(s *scene) {
			s.patchAs("csi-attacher", merge, `{"status":{"attachError":{"message":"no","time":"2026-01-01T00:00:00Z"}}}`, "status")
		}, "csi-attacher status"},
		{"csi-attacher writes another error", func(s *scene) {
			s.patchAs("csi-attacher", merge, `{"status":{"attachError":{"message":"no","time":"2026-01-01T00:00:00Z"}}}`, "status")
			s.later()
		}, func(s *scene) {
			s.patchAs("csi-attacher", merge, `{"status":{"attachError":{"message":"still no","time":"2026-01-01T00:00:01Z"}}}`, "status")
		}, "csi-attacher status"},
		{"csi-attacher writes the status of what the hub attached", (*scene).hubAttaches, func(s *scene) {
			s.patchAs("csi-attacher", merge, `{"status":{"attachmentMetadata":{"a":"b"}}}`, "status")
		}, "csi-attacher status"},
		{"csi-attacher notes another node ID", (*scene).sidecarAttaches, func(s *scene) {
			s.patchAs("csi-attacher", merge, `{"metadata":{"annotations":{"`+AnnotationNodeID+`":"id-2"}}}`)
		}, "csi-attacher node ID"},
		{"csi-attacher overwrites the node ID that the hub wrote", (*scene).hubAttaches, func(s *scene) {
			s.patchAs("csi-attacher", patchJ, `[{"op":"replace","path":"/metadata/annotations/csi.alpha.kubernetes.io~1node-id","value":"id-2"}]`)
		}, "csi-attacher node ID"},
		{"somebody updates the status", (*scene).hubAttaches, func(s *scene) {
			s.update("kubectl-edit", true, func(va *storagev1.VolumeAttachment) { va.Status.Attached = false })
		}, "kubectl-edit status"},
		{"somebody updates the finalizers", nil, func(s *scene) {
			s.update("operator", false, func(va *storagev1.VolumeAttachment) { va.Finalizers = []string{"a/b", finalizer} })
		}, "operator finalizer"},
		{"somebody applies a status", (*scene).hubAttaches, func(s *scene) {
			s.patchAs("gitops", apply, `},"status":{"attached":false}}`, "status")
		}, "gitops status"},
		{takesNothing, (*scene).hubAttaches, func(s *scene) {
			s.patchAs("gitops", apply, `},"status":{"attached":true}}`, "status")
		}, "gitops status"},
		{"somebody applies a finalizer", nil, func(s *scene) {
			s.patchAs("gitops", apply, `,"finalizers":["`+finalizer+`"]}}`)
		}, "gitops finalizer"},
		{"somebody applies a node ID", nil, func(s *scene) {
			s.patchAs("gitops", apply, `,"annotations":{"`+AnnotationNodeID+`":"id-9"}}}`)
		}, "gitops node ID"},

		{"the hub attaches", nil, (*scene).hubAttaches, ""},
		{"the hub writes an error", nil, func(s *scene) {
			if err := s.SaveError(s.t.Context(), s.attachment(), Attaching, fmt.Errorf("no")); err != nil {
				s.t.Fatal(err)
			}
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
			va, err := s.Release(s.t.Context(), s.plan(attaching))
			if err == nil {
				err = s.MarkDetached(s.t.Context(), va)
			}
			if err != nil {
				s.t.Fatal(err)
			}
		}, ""},
		{"nothing but the deletion", (*scene).hubAttaches, (*scene).delete, ""},
		{"labels and finalizers and annotations of others", (*scene).hubAttaches, func(s *scene) {
			s.patchAs("operator", merge, `{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"},"finalizers":["`+finalizer+`","e/f","external-attacher/other"]}}`)
		}, ""},
		{"a label written by who once wrote the finalizer", (*scene).sidecarAttaches, func(s *scene) {
			s.later()
			s.patchAs("csi-attacher", merge, `{"metadata":{"labels":{"a":"b"}}}`)
		}, ""},
		{"a status that nobody takes through the object", (*scene).hubAttaches, func(s *scene) {
			s.patchAs("kubectl", merge, `{"metadata":{"labels":{"a":"b"}},"status":{"attached":false}}`)
		}, ""},
		{"csi-attacher takes its finalizer away and leaves no trace", (*scene).sidecarAttaches, func(s *scene) {
			s.later()
			s.patchAs("csi-attacher", merge, `{"metadata":{"finalizers":null}}`)
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
				w, foreign := ForeignWrite(states[0], states[1], finalizer)
				if got := strings.TrimSpace(w.Manager + " " + w.What); got != tc.want || foreign != (tc.want != "") {
					t.Errorf("foreign write %q, %v, want %q\nbefore %v\nafter %v", got, foreign, tc.want, states[0].ManagedFields, states[1].ManagedFields)
				}
				if foreign && time.Since(w.Time).Abs() > time.Hour && tc.name != takesNothing {
					t.Errorf("written at %v, want the time of the write", w.Time)
				}
			}
			if whole, kept := othersWrites(after, finalizer), othersWrites(prunedAfter, finalizer); !slices.Equal(whole, kept) {
				t.Errorf("writes of others told from the whole object %v, from the pruned one %v", whole, kept)
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

func TestWritersOfAnAttachmentAreToldApart(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	if writes := attacherWrites(s.attachment(), finalizer); writes != nil {
		t.Errorf("writes of a new object: %v, want none", writes)
	}
	s.sidecarAttaches()
	s.patchAs("kubectl", merge, `{"metadata":{"labels":{"a":"b"}}}`)
	s.hubAttaches() // nothing left to be done
	assertWrites(t, s.attachment(), "csi-attacher finalizer", "csi-attacher node ID", "csi-attacher status")
	s.markUnattached()
	s.hubAttaches()
	assertWrites(t, s.attachment(), "csi-attacher finalizer", "csi-attacher node ID", FieldManager+" status")
	if writes := attacherWrites(s.attachment(), "external-attacher/other"); len(writes) != 2 {
		t.Errorf("writes with the finalizer of another driver: %v, want no finalizer among them", writes)
	}
}

func assertWrites(t *testing.T, va *storagev1.VolumeAttachment, want ...string) {
	t.Helper()
	got := map[string]bool{}
	for _, w := range attacherWrites(va, finalizer) {
		got[w.Manager+" "+w.What] = true
	}
	wanted := map[string]bool{}
	for _, w := range want {
		wanted[w] = true
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestAnotherObjectOfTheNameIsComparedWithNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.sidecarAttaches()
	va := s.attachment()
	namesake := va.DeepCopy()
	namesake.UID = "another"
	for _, before := range []*storagev1.VolumeAttachment{nil, namesake} {
		if w, foreign := ForeignWrite(before, va, finalizer); !foreign || w.Manager != "csi-attacher" {
			t.Errorf("foreign write %+v, %v: want all that csi-attacher wrote", w, foreign)
		}
	}
}

func TestManagersThatTheAPIServerPutsTogetherAreNoNewOnes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.sidecarAttaches()
	s.later() // the oldest managers are put together
	for i := range 12 {
		before := s.attachment()
		s.patchAs(fmt.Sprintf("m%d", i), merge, fmt.Sprintf(`{"metadata":{"labels":{"l%d":"x"}}}`, i))
		if w, foreign := ForeignWrite(before, s.attachment(), finalizer); foreign {
			t.Errorf("foreign write %+v, want none: labels only were written", w)
		}
	}
	together := map[string]bool{}
	for _, w := range attacherWrites(s.attachment(), finalizer) {
		together[w.Manager] = true
	}
	if !together[ancientChanges] {
		t.Errorf("entries %v: want csi-attacher's put together with others", s.attachment().ManagedFields)
	}
}
