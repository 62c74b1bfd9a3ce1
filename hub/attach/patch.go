package attach

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Patch changes one object, by operations that the API server applies all together or not at all.
// The first operations test the object that the patch was made from: the patch fails and changes
// nothing if another object has the name now, or the finalizers have changed. A patch never
// replaces a list of finalizers.
//
// It is plain data, compared with reflect.DeepEqual, and shares no memory with the object. It may
// hold the publish context of a volume, which must not be logged.
type Patch struct {
	Name string    // of the object
	UID  types.UID // of the object; the first operation tests it
	Ops  []PatchOp
}

// PatchOp is one operation of a Patch, as in a JSON Patch (RFC 6902).
type PatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`            // JSON Pointer (RFC 6901)
	Value any    `json:"value,omitempty"` // plain data
}

func test(path string, v any) PatchOp { return PatchOp{"test", path, v} }
func absent(path string) PatchOp      { return test(path, json.RawMessage("null")) } // fails if the field exists
func add(path string, v any) PatchOp  { return PatchOp{"add", path, v} }             // sets the field, or inserts into a list
func remove(path string) PatchOp      { return PatchOp{"remove", path, nil} }

// newPatch returns the patch that does some operations on an object, nil for none.
func newPatch(o metav1.Object, ops ...PatchOp) *Patch {
	if len(ops) == 0 {
		return nil
	}
	return &Patch{Name: o.GetName(), UID: o.GetUID(), Ops: append([]PatchOp{test("/metadata/uid", o.GetUID())}, ops...)}
}

// addAttachmentFinalizer returns the patch that adds the finalizer and a note of the target to a
// VolumeAttachment, nil if none is missing. Empty parts of the target are not written.
func addAttachmentFinalizer(va *storagev1.VolumeAttachment, finalizer string, t Target) *Patch {
	return newPatch(va, append(addFinalizer(va, finalizer), addAnnotations(va.Annotations, t)...)...)
}

// addFinalizer returns the operations that add the finalizer to an object, none if it has it.
func addFinalizer(o metav1.Object, finalizer string) []PatchOp {
	const path = "/metadata/finalizers"
	switch have := o.GetFinalizers(); {
	case slices.Contains(have, finalizer):
		return nil
	case len(have) == 0:
		return []PatchOp{absent(path), add(path, []string{finalizer})}
	default: // without the test a stale cache could add the finalizer twice
		return []PatchOp{test(path, slices.Clone(have)), add(path+"/-", finalizer)}
	}
}

// removeFinalizer returns the patch that removes the finalizer from an object, nil if it has none.
func removeFinalizer(o metav1.Object, finalizer string) *Patch {
	i := slices.Index(o.GetFinalizers(), finalizer)
	if i < 0 {
		return nil
	}
	path := "/metadata/finalizers/" + strconv.Itoa(i)
	return newPatch(o, test(path, finalizer), remove(path))
}

func addAnnotations(have map[string]string, t Target) []PatchOp {
	const path = "/metadata/annotations"
	missing := map[string]string{AnnotationNodeID: t.NodeID, AnnotationVolumeHandle: t.VolumeHandle}
	maps.DeleteFunc(missing, func(key, value string) bool { return value == "" || have[key] == value })
	if len(have) == 0 && len(missing) > 0 {
		return []PatchOp{absent(path), add(path, missing)}
	}
	var ops []PatchOp
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		ops = append(ops, add(annotationPath(key), missing[key]))
	}
	return ops
}

// annotationPath returns the JSON Pointer to an annotation.
func annotationPath(key string) string {
	return "/metadata/annotations/" + strings.ReplaceAll(key, "/", "~1")
}
