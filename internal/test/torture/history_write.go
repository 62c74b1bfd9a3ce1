package torture

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	forEver moment = math.MaxInt64
	// bodyShown bounds write.Body.
	bodyShown = 200
	// writeTime bounds a write that its client has given up.
	writeTime = 10 * time.Second
)

// recorder passes requests on, and records those that change a VolumeAttachment, a PersistentVolume or a Lease. It
// carries a write through although its client gives it up, as an API server does: so the outcome is known.
type recorder struct {
	next    http.RoundTripper
	history *history
	by      string
	process func() string              // the process of the hub; nil: not a hub
	driver  func(volume string) string // empty: not a volume of this run
}

// leftKey is the key of a context for the moment when a request left its process.
type leftKey struct{}

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	w, interesting := r.writeOf(request)
	if r.history == nil || !interesting {
		return r.next.RoundTrip(request)
	}
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(request.Context()), writeTime)
	defer cancel()
	sent, err := readBody(request.Body)
	if err != nil {
		return nil, err
	}
	out := request.Clone(ctx)
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(sent)), int64(len(sent))
	r.describe(&w, sent)
	response, err := r.next.RoundTrip(out)
	var body []byte
	if err == nil {
		if body, err = readBody(response.Body); err == nil {
			w.Code = response.StatusCode
			response.Body = io.NopCloser(bytes.NewReader(body))
			if w.Code < 300 {
				r.result(&w, unzipped(response.Header, body))
			}
		}
	}
	w.Until = r.history.moment(time.Now())
	r.history.wrote(w)
	return response, err
}

// refused records a write that never reaches the API server.
func (r *recorder) refused(request *http.Request) {
	if w, ok := r.writeOf(request); ok && r.history != nil {
		w.Code, w.Until = -1, r.history.moment(time.Now())
		r.history.wrote(w)
	}
}

// writeOf returns what the request line says about a write. ok is false for all other requests.
func (r *recorder) writeOf(request *http.Request) (w write, ok bool) {
	if r.history == nil || request.Method == http.MethodGet {
		return w, false
	}
	left, ok := request.Context().Value(leftKey{}).(time.Time)
	if !ok {
		left = time.Now()
	}
	w = write{By: r.by, Verb: request.Method, At: r.history.moment(left)}
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	for i, part := range parts {
		switch part {
		case "volumeattachments", "persistentvolumes", "leases":
			if w.Object = strings.Join(parts[i:], "/"); part == "leases" {
				w.At = r.history.moment(time.Now()) // when its turn can begin at the earliest
			}
			if len(parts) > i+1 {
				r.locate(&w, part, parts[i+1])
			}
			return w, true
		}
	}
	return w, false
}

// locate says what volume and node the object of a write is for.
func (r *recorder) locate(w *write, resource, name string) {
	switch resource {
	case "volumeattachments":
		pod, node, _ := strings.Cut(name, ".")
		if i := strings.LastIndex(pod, "-p"); i >= 0 {
			w.Volume, w.Node = pod[:i], testbed.NodeID(node)
		}
	case "persistentvolumes":
		w.Volume = name
	}
	w.Driver = r.driver(w.Volume)
}

// describe adds what the body of a request says.
func (r *recorder) describe(w *write, body []byte) {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	lease, ok := object.(*coordinationv1.Lease)
	if err != nil || !ok {
		if w.Verb == http.MethodPatch {
			w.Body = string(body[:min(len(body), bodyShown)])
		}
		return
	}
	w.Object = "leases/" + lease.Name
	w.Driver, _ = strings.CutPrefix(lease.Name, "external-attacher-leader-")
	w.Lease = &leaseWrite{BasedOn: number(lease.ResourceVersion), Duration: time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second}
	if id := ptr.Deref(lease.Spec.HolderIdentity, ""); id != "" && r.process != nil {
		w.Lease.Holder = cmp.Or(r.history.holder(id, r.process()), id)
	}
}

// result adds what the answer of the API server says.
func (r *recorder) result(w *write, body []byte) {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return
	}
	switch o := object.(type) {
	case *storagev1.VolumeAttachment:
		r.locate(w, "volumeattachments", o.Name)
		r.state(w, "volumeattachments", o)
		w.Attached = o.Status.Attached
	case *corev1.PersistentVolume:
		r.locate(w, "persistentvolumes", o.Name)
		r.state(w, "persistentvolumes", o)
	case *coordinationv1.Lease:
		w.Version = number(o.ResourceVersion)
	}
}

func (r *recorder) state(w *write, resource string, o metav1.Object) {
	w.Object = resource + "/" + o.GetName()
	w.Version, w.UID, w.Deleting = number(o.GetResourceVersion()), string(o.GetUID()), o.GetDeletionTimestamp() != nil
	w.Gone = w.Deleting && len(o.GetFinalizers()) == 0
	w.Guarded = slices.Contains(o.GetFinalizers(), attach.Finalizer(w.Driver))
}

func number(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readBody reads and closes a body; nil is empty.
func readBody(body io.ReadCloser) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	return data, nil
}

// unzipped returns the content of a body.
func unzipped(header http.Header, body []byte) []byte {
	if header.Get("Content-Encoding") != "gzip" {
		return body
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil
	}
	content, err := io.ReadAll(z)
	if err != nil {
		return nil
	}
	return content
}
