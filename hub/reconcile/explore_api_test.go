package reconcile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// exploredAPI is the state of the explored API server. Nobody changes it: a write returns a new one.
type exploredAPI struct {
	objects [resources][]apiObject // by name
	version [resources]int
}

type apiObject interface {
	metav1.Object
	runtime.Object
}

// watchEvent is an event of a watch: the object as it is now, or its last state.
type watchEvent struct {
	resource resource
	gone     bool
	object   apiObject
}

func (e watchEvent) String() string {
	if e.object == nil {
		return ""
	}
	if e.gone {
		return fmt.Sprintf("%v %s is gone", e.resource, e.object.GetName())
	}
	return fmt.Sprintf("%v %s", e.resource, e.object.GetName())
}

func (a *exploredAPI) find(r resource, name string) apiObject {
	for _, o := range a.objects[r] {
		if o.GetName() == name {
			return o
		}
	}
	return nil
}

// put returns the API server with an object created or changed, and the event of that. An object that is being deleted is
// gone when its last finalizer is, as in the real API server.
func (a *exploredAPI) put(r resource, o apiObject) (*exploredAPI, watchEvent) {
	return a.set(r, o, o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0)
}

// remove returns the API server after the deletion of an object. Without finalizers it is gone at once, and its last state
// has no time of deletion, as in the real API server.
func (a *exploredAPI) remove(r resource, o apiObject) (*exploredAPI, watchEvent) {
	o = o.DeepCopyObject().(apiObject)
	if len(o.GetFinalizers()) == 0 {
		return a.set(r, o, true)
	}
	o.SetDeletionTimestamp(&deletedAt)
	return a.set(r, o, false)
}

func (a *exploredAPI) set(r resource, o apiObject, gone bool) (*exploredAPI, watchEvent) {
	next := *a
	next.version[r]++
	o.SetResourceVersion(strconv.Itoa(next.version[r]))
	next.objects[r] = slices.DeleteFunc(slices.Clone(a.objects[r]), func(old apiObject) bool { return old.GetName() == o.GetName() })
	if !gone {
		next.objects[r] = append(next.objects[r], o)
		slices.SortFunc(next.objects[r], func(x, y apiObject) int {
			if x.GetName() < y.GetName() {
				return -1
			}
			return 1
		})
	}
	return &next, watchEvent{r, gone, o}
}

var (
	resourceOf = [resources]schema.GroupResource{{Group: "storage.k8s.io", Resource: "volumeattachments"}, {Resource: "persistentvolumes"}, {Group: "storage.k8s.io", Resource: "csinodes"}, {Group: "storage.k8s.io", Resource: "csidrivers"}}
	exampleOf  = [resources]func() apiObject{
		func() apiObject { return &storagev1.VolumeAttachment{} },
		func() apiObject { return &corev1.PersistentVolume{} },
		func() apiObject { return &storagev1.CSINode{} },
		func() apiObject { return &storagev1.CSIDriver{} },
	}
)

// handle returns the API server after a request, its answer, and the event of a change.
func (a *exploredAPI) handle(q request) (*exploredAPI, answer, *watchEvent) {
	if q.verb == verbList {
		list := &storagev1.VolumeAttachmentList{}
		list.ResourceVersion = strconv.Itoa(a.version[attachments])
		return a, answer{list: list}, nil
	}
	now := a.find(q.resource, q.name)
	if now == nil {
		return a, answer{err: apierrors.NewNotFound(resourceOf[q.resource], q.name)}, nil
	}
	if q.verb == verbGet {
		return a, answer{object: now}, nil
	}
	patched, ok := patchOf(q, now)
	switch {
	case !ok:
		return a, answer{err: testFailed}, nil
	case patched == nil:
		return a, answer{object: now}, nil
	}
	next, event := a.put(q.resource, patched)
	return next, answer{object: patched}, &event
}

// testFailed is the API server's answer to a JSON patch whose tests fail.
var testFailed = apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", "the server rejected our request due to an error in our request", 0, false)

// patchOf applies a JSON patch, and reports whether its tests hold. It returns nil for a patch that changes nothing.
// Like the real API server it leaves the status as it is, unless the patch is for the subresource, which leaves the rest.
func patchOf(q request, now apiObject) (apiObject, bool) {
	before, err := json.Marshal(now)
	if err != nil {
		panic(err)
	}
	patch, err := jsonpatch.DecodePatch([]byte(q.body))
	if err != nil {
		panic(err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, false
	}
	patched := exampleOf[q.resource]()
	if err := json.Unmarshal(after, patched); err != nil {
		panic(err)
	}
	if va, ok := patched.(*storagev1.VolumeAttachment); ok {
		old := now.(*storagev1.VolumeAttachment)
		if q.status {
			status := va.Status
			va = old.DeepCopy()
			va.Status = status
			patched = va
		} else {
			va.Status = old.Status
		}
	}
	if again, _ := json.Marshal(patched); string(again) == string(before) {
		return nil, true
	}
	return patched, true
}

func (a *exploredAPI) attachments() []*storagev1.VolumeAttachment {
	all := make([]*storagev1.VolumeAttachment, len(a.objects[attachments]))
	for i, o := range a.objects[attachments] {
		all[i] = o.(*storagev1.VolumeAttachment)
	}
	return all
}

func (a *exploredAPI) volume(name string) *corev1.PersistentVolume {
	pv, _ := a.find(volumes, name).(*corev1.PersistentVolume)
	return pv
}

// attachRequired returns attachRequired of the driver.
func (a *exploredAPI) attachRequired() bool {
	d, ok := a.find(drivers, exploredDriver).(*storagev1.CSIDriver)
	return !ok || *d.Spec.AttachRequired
}

func (a *exploredAPI) nodeID(name string) string {
	return a.find(nodes, name).(*storagev1.CSINode).Spec.Drivers[0].NodeID
}
