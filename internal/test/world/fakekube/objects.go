package fakekube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiVersions and kinds are those of the objects of each resource.
var (
	apiVersions = map[string]string{"volumeattachments": "storage.k8s.io/v1", "csinodes": "storage.k8s.io/v1", "csidrivers": "storage.k8s.io/v1", "leases": "coordination.k8s.io/v1"}
	kinds       = map[string]string{
		"volumeattachments": "VolumeAttachment", "csinodes": "CSINode", "csidrivers": "CSIDriver",
		"persistentvolumes": "PersistentVolume", "nodes": "Node", "secrets": "Secret", "events": "Event", "leases": "Lease",
	}
)

func apiVersionOf(resource string) string {
	if v, ok := apiVersions[resource]; ok {
		return v
	}
	return "v1"
}

// serve answers a request. The caller has locked mu.
func (a *API) serve(verb string, k key, sub string, body []byte) (int, any) {
	if kinds[k.resource] == "" {
		return http.StatusNotFound, failure(http.StatusNotFound, "no such resource here", k)
	}
	have := a.objects[k]
	if have == nil && verb != "list" && verb != "create" {
		return http.StatusNotFound, failure(http.StatusNotFound, "not found", k)
	}
	switch verb {
	case "get":
		return http.StatusOK, have
	case "list":
		return http.StatusOK, a.list(k.resource)
	case "create":
		return a.create(k, decode(body))
	case "update":
		return a.update(k, decode(body), have, sub)
	case "patch":
		return a.patch(k, have, sub, body)
	case "delete":
		return a.remove(k, have)
	}
	return http.StatusMethodNotAllowed, failure(http.StatusMethodNotAllowed, "not served here", k)
}

func decode(text []byte) object {
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		panic(fmt.Sprintf("a client sent what is no JSON: %v", err))
	}
	return o
}

func clone(o object) object {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // it was made of JSON
	}
	return decode(text)
}

// meta returns the metadata of an object; a change of it changes the object.
func (o object) meta() map[string]any {
	m, ok := o["metadata"].(map[string]any)
	if !ok {
		m = map[string]any{}
		o["metadata"] = m
	}
	return m
}

func (o object) finalizers() []any {
	list, _ := o.meta()["finalizers"].([]any)
	return list
}

func (o object) deleting() bool { return o.meta()["deletionTimestamp"] != nil }

func (a *API) list(resource string) any {
	items := []object{}
	for _, k := range a.keys(resource) {
		items = append(items, a.objects[k])
	}
	return map[string]any{
		"kind": kinds[resource] + "List", "apiVersion": apiVersionOf(resource),
		"metadata": map[string]any{"resourceVersion": strconv.FormatInt(a.version, 10)}, "items": items,
	}
}

// keys returns those of all objects of a resource, sorted.
func (a *API) keys(resource string) []key {
	var keys []key
	for k := range a.objects {
		if k.resource == resource {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(x, y key) int { return strings.Compare(x.namespace+"/"+x.name, y.namespace+"/"+y.name) })
	return keys
}

func (a *API) create(k key, o object) (int, any) {
	m := o.meta()
	k.name, _ = m["name"].(string)
	if a.objects[k] != nil {
		return http.StatusConflict, failure(http.StatusConflict, "already exists", k)
	}
	o["kind"], o["apiVersion"] = kinds[k.resource], apiVersionOf(k.resource)
	m["uid"] = "uid-" + strconv.FormatInt(a.version+1, 10)
	m["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	a.keep(k, o, "ADDED")
	return http.StatusCreated, o
}

// store stores the part of an object that the request may change: the subresource writes the status
// and nothing else, and only the subresource writes it.
func (a *API) store(k key, o, have object, sub string) (int, any) {
	if sub == "status" {
		status := o["status"]
		o = clone(have)
		o["status"] = status
	} else if k.resource == "volumeattachments" || k.resource == "persistentvolumes" {
		if o["status"] = have["status"]; have["status"] == nil {
			delete(o, "status")
		}
	}
	if o.deleting() && len(o.finalizers()) == 0 {
		a.drop(k, o)
		return http.StatusOK, o
	}
	a.keep(k, o, "MODIFIED")
	return http.StatusOK, o
}

// update stores an object unless it is based on an old resourceVersion.
func (a *API) update(k key, o, have object, sub string) (int, any) {
	if version, given := o.meta()["resourceVersion"]; given && version != have.meta()["resourceVersion"] {
		return http.StatusConflict, failure(http.StatusConflict, "the object has been modified", k)
	}
	return a.store(k, o, have, sub)
}

func (a *API) patch(k key, have object, sub string, body []byte) (int, any) {
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return http.StatusUnsupportedMediaType, failure(http.StatusUnsupportedMediaType, "only JSON patches are served here: "+err.Error(), k)
	}
	was, err := json.Marshal(have)
	if err != nil {
		panic(err)
	}
	is, err := patch.Apply(was)
	if err != nil { // a test did not hold
		return http.StatusUnprocessableEntity, failure(http.StatusUnprocessableEntity, err.Error(), k)
	}
	return a.store(k, decode(is), have, sub)
}

func (a *API) remove(k key, have object) (int, any) {
	o := clone(have)
	if len(o.finalizers()) == 0 {
		a.drop(k, o)
		return http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}
	}
	if !o.deleting() {
		o.meta()["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		a.keep(k, o, "MODIFIED")
	}
	return http.StatusOK, o
}

// keep stores an object under a new resourceVersion and sends an event.
func (a *API) keep(k key, o object, what string) {
	if len(o.finalizers()) == 0 {
		delete(o.meta(), "finalizers") // the API server keeps no empty list
	}
	o.meta()["resourceVersion"] = strconv.FormatInt(a.next(), 10)
	a.objects[k] = o
	a.tell(k, o, what)
}

// drop removes an object and sends an event with its last state.
func (a *API) drop(k key, o object) {
	o.meta()["resourceVersion"] = strconv.FormatInt(a.next(), 10)
	delete(a.objects, k)
	a.tell(k, o, "DELETED")
}
