package attach

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func BenchmarkDecideAttach(b *testing.B) {
	f := Inputs{VolumeAttachment: attachment(), PersistentVolume: volume(), CSINode: csiNode("node-id")}
	benchmarkDecide(b, f, func(p Plan) bool { return p.Publish != nil && p.VolumeFinalizer != nil && p.AttachmentFinalizer != nil })
}

func BenchmarkDecideDetach(b *testing.B) {
	f := Inputs{VolumeAttachment: attachment(attached, guarded, deleted, annotated(AnnotationNodeID, "node-id")), PersistentVolume: volume(), CSINode: csiNode("node-id")}
	benchmarkDecide(b, f, func(p Plan) bool { return p.Target != Target{} })
}

func BenchmarkDecideNothing(b *testing.B) {
	f := Inputs{VolumeAttachment: attachment(attached, guarded), PersistentVolume: volume(), CSINode: csiNode("node-id")}
	benchmarkDecide(b, f, func(p Plan) bool { return p.Operation == Idle })
}

func benchmarkDecide(b *testing.B, f Inputs, want func(Plan) bool) {
	b.ReportAllocs()
	for b.Loop() {
		if p, err := attaching.Decide(f); err != nil || !want(p) {
			b.Fatalf("%+v, %v", p, err)
		}
	}
}

func BenchmarkForeignWrite(b *testing.B) {
	before := attachment(attached, guarded)
	before.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: FieldManager, Operation: "Update", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:attached":{}}}`)},
		{Manager: "kube-controller-manager", Operation: "Update", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{".":{},"v:\"external-attacher/other\"":{}}}}`)}}
	b.ReportAllocs()
	for b.Loop() {
		if manager, _ := ForeignWrite(before, before); manager != "" {
			b.Fatal(manager)
		}
	}
}
