package attach

import (
	"fmt"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPrunedManagedFieldsShareWhatIsEqual(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.sidecarAttaches()
	s.patchAs("kubectl", merge, `{"metadata":{"labels":{"a":"b"}}}`)
	va := s.attachment()
	was := va.DeepCopy()
	one, other := PruneManagedFields(va.ManagedFields), PruneManagedFields(va.DeepCopy().ManagedFields)
	if !reflect.DeepEqual(va, was) {
		t.Error("the object was changed")
	}
	if len(one) != 2 || cap(one) != 2 {
		t.Fatalf("entries %v, want the two of csi-attacher", one)
	}
	for i := range one {
		if one[i].FieldsV1 != other[i].FieldsV1 {
			t.Errorf("the fields %v are there twice", one[i].FieldsV1)
		}
	}
	if again := PruneManagedFields(one); !reflect.DeepEqual(again, one) {
		t.Errorf("pruned again: %v, want %v", again, one)
	}
	if PruneManagedFields(nil) != nil || PruneManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1("{")}}) != nil {
		t.Error("want nothing of nothing, and of what cannot be read")
	}
}

func TestWhatOnlyTheHubWroteTakesNoMemoryForEachVolumeAttachment(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.hubAttaches()
	one := s.attachment().ManagedFields
	s.later()
	if err := s.SaveError(t.Context(), s.attachment(), Attaching, fmt.Errorf("no")); err != nil {
		t.Fatal(err)
	}
	for _, entries := range [][]metav1.ManagedFieldsEntry{one, s.attachment().ManagedFields} {
		if pruned := PruneManagedFields(entries); pruned != nil {
			t.Errorf("%v, want nothing", pruned)
		}
	}
}
