package attach

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
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

// PatchOp is one operation of a Patch.
type PatchOp struct {
	Verb  PatchVerb
	Path  string // JSON Pointer (RFC 6901)
	Value any    // plain data that encodes to JSON; nil with OpTestAbsent and OpRemove
}

// PatchVerb is what a PatchOp does.
type PatchVerb string

const (
	OpTest       PatchVerb = "test"        // fails unless the field has the value
	OpTestAbsent PatchVerb = "test absent" // fails if the field exists
	OpAdd        PatchVerb = "add"         // sets the field, or inserts into a list
	OpRemove     PatchVerb = "remove"
)

func absent(path string) PatchOp      { return PatchOp{Verb: OpTestAbsent, Path: path} }
func test(path string, v any) PatchOp { return PatchOp{Verb: OpTest, Path: path, Value: v} }
func add(path string, v any) PatchOp  { return PatchOp{Verb: OpAdd, Path: path, Value: v} }
func remove(path string) PatchOp      { return PatchOp{Verb: OpRemove, Path: path} }

func newPatch(name string, uid types.UID, ops ...PatchOp) *Patch {
	return &Patch{Name: name, UID: uid, Ops: append([]PatchOp{test("/metadata/uid", uid)}, ops...)}
}

// encode returns the patch as a JSON Patch (RFC 6902). It panics on a value that is not
// plain data.
func (p *Patch) encode() []byte {
	type op struct {
		Op    PatchVerb `json:"op"`
		Path  string    `json:"path"`
		Value any       `json:"value,omitempty"`
	}
	ops := make([]op, len(p.Ops))
	for i, o := range p.Ops {
		ops[i] = op{o.Verb, o.Path, o.Value}
		if o.Verb == OpTestAbsent { // in JSON Patch a test for null
			ops[i].Op, ops[i].Value = OpTest, json.RawMessage("null")
		}
	}
	body, err := json.Marshal(ops)
	if err != nil {
		panic(err)
	}
	return body
}

// addVolumeFinalizer returns the patch that adds the finalizer to a PersistentVolume, nil if it has it.
func addVolumeFinalizer(v *Volume, finalizer string) *Patch {
	ops := addFinalizer(v.Finalizers, finalizer)
	if ops == nil {
		return nil
	}
	return newPatch(v.Name, v.UID, ops...)
}

// addAttachmentFinalizer returns the patch that adds the finalizer and the annotations to a
// VolumeAttachment, nil if none is missing. Empty parts of the target are not written.
func addAttachmentFinalizer(va *storagev1.VolumeAttachment, finalizer string, t Target) *Patch {
	ops := addFinalizer(va.Finalizers, finalizer)
	ops = append(ops, addAnnotations(va.Annotations, map[string]string{
		AnnotationNodeID:       t.NodeID,
		AnnotationVolumeHandle: t.VolumeHandle,
	})...)
	if len(ops) == 0 {
		return nil
	}
	return newPatch(va.Name, va.UID, ops...)
}

// releaseAttachment returns the patch that removes the finalizer from a VolumeAttachment, nil if it
// has none.
func releaseAttachment(va *storagev1.VolumeAttachment, finalizer string) *Patch {
	return removeFinalizer(va.Name, va.UID, va.Finalizers, finalizer)
}

func addFinalizer(have []string, finalizer string) []PatchOp {
	const path = "/metadata/finalizers"
	switch {
	case slices.Contains(have, finalizer):
		return nil
	case len(have) == 0:
		return []PatchOp{absent(path), add(path, []string{finalizer})}
	}
	// Without the test a stale cache could add the finalizer twice.
	return []PatchOp{test(path, slices.Clone(have)), add(path+"/-", finalizer)}
}

func removeFinalizer(name string, uid types.UID, have []string, finalizer string) *Patch {
	i := slices.Index(have, finalizer)
	if i < 0 {
		return nil
	}
	path := "/metadata/finalizers/" + strconv.Itoa(i)
	return newPatch(name, uid, test(path, finalizer), remove(path))
}

func addAnnotations(have, want map[string]string) []PatchOp {
	const path = "/metadata/annotations"
	missing := map[string]string{}
	for key, value := range want {
		if value != "" && have[key] != value {
			missing[key] = value
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if len(have) == 0 {
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
