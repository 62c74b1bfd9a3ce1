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

// Patch is a JSON Patch (RFC 6902) of one object. Its first operations test what
// it was computed from, so that it fails, and changes nothing, when the object is
// another one of the same name or its finalizers are others than believed. A
// list of finalizers is never written as a whole over another one.
type Patch struct {
	Name string    // of the object
	UID  types.UID // of the object
	Body []byte
}

type patchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// testAbsent is a test for a field that is not there: "value" must be present and null.
type testAbsent struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func absent(path string) any         { return testAbsent{Op: "test", Path: path} }
func test(path string, v any) any    { return patchOp{Op: "test", Path: path, Value: v} }
func add(path string, v any) any     { return patchOp{Op: "add", Path: path, Value: v} }
func remove(path string) any         { return patchOp{Op: "remove", Path: path} }
func sameObject(o metav1.Object) any { return test("/metadata/uid", o.GetUID()) }

// newPatch encodes a patch of an object. The values are plain, so it cannot fail.
func newPatch(o metav1.Object, ops ...any) *Patch {
	body, err := json.Marshal(append([]any{sameObject(o)}, ops...))
	if err != nil {
		panic(err)
	}
	return &Patch{Name: o.GetName(), UID: o.GetUID(), Body: body}
}

// guardVolume adds the finalizer to a PersistentVolume, nil if it is there.
func guardVolume(pv metav1.Object, finalizer string) *Patch {
	ops := addFinalizer(pv.GetFinalizers(), finalizer)
	if ops == nil {
		return nil
	}
	return newPatch(pv, ops...)
}

// guardAttachment adds the finalizer and the annotations to a VolumeAttachment,
// nil if nothing is missing. Empty values of the target are not written.
func guardAttachment(va *storagev1.VolumeAttachment, finalizer string, t Target) *Patch {
	ops := addFinalizer(va.Finalizers, finalizer)
	ops = append(ops, addAnnotations(va.Annotations, map[string]string{
		AnnotationNodeID:       t.NodeID,
		AnnotationVolumeHandle: t.VolumeHandle,
	})...)
	if len(ops) == 0 {
		return nil
	}
	return newPatch(va, ops...)
}

// releaseAttachment removes the finalizer from a VolumeAttachment.
func releaseAttachment(va *storagev1.VolumeAttachment, finalizer string) *Patch {
	return removeFinalizer(va, va.Finalizers, finalizer)
}

func addFinalizer(have []string, finalizer string) []any {
	const path = "/metadata/finalizers"
	switch {
	case slices.Contains(have, finalizer):
		return nil
	case len(have) == 0:
		return []any{absent(path), add(path, []string{finalizer})}
	}
	// Without the test a cache that lags could add the finalizer twice.
	return []any{test(path, have), add(path+"/-", finalizer)}
}

func removeFinalizer(o metav1.Object, have []string, finalizer string) *Patch {
	i := slices.Index(have, finalizer)
	if i < 0 {
		return nil
	}
	path := "/metadata/finalizers/" + strconv.Itoa(i)
	return newPatch(o, test(path, finalizer), remove(path))
}

func addAnnotations(have, want map[string]string) []any {
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
		return []any{absent(path), add(path, missing)}
	}
	var ops []any
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		ops = append(ops, add(path+"/"+strings.ReplaceAll(key, "/", "~1"), missing[key]))
	}
	return ops
}
