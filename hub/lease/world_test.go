package lease

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"k8s.io/utils/ptr"
)

func TestMain(m *testing.M) {
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// testTimeout is when a test gives up to wait for what it wants to see.
const testTimeout = 90 * time.Second

// world is a namespace of the test's own on a real API server.
type world struct {
	t         *testing.T
	ctx       context.Context
	plane     *testbed.ControlPlane
	kube      kubernetes.Interface
	namespace string
	replicas  int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, plane: testbed.Shared(t)}
	w.kube = w.plane.Clientset()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	w.ctx = klog.NewContext(ctx, klog.Background())
	w.namespace = w.makeNamespace()
	return w
}

func (w *world) makeNamespace() string {
	w.t.Helper()
	ns, err := w.kube.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "lease-"}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return ns.Name
}

func quick(o *Options) {
	o.Duration, o.RenewDeadline, o.RetryPeriod = 2*time.Second, time.Second, 200*time.Millisecond
}

func long(o *Options) {
	o.Duration, o.RenewDeadline, o.RetryPeriod = 60*time.Second, 30*time.Second, 200*time.Millisecond
}

func alone(o *Options) { o.Alone = true }

// replica is one Leases with a connection of its own, which can be cut.
type replica struct {
	w *world
	*Leases
	cut  atomic.Bool                  // requests fail, and what is in flight ends
	lose atomic.Pointer[func() error] // called after a write was done: an error takes the place of the answer
	stop func()                       // ends what it holds, then Run

	mu       sync.Mutex
	conns    map[*cutBody]bool
	serving  map[string]*Term
	terms    map[string]int // how often it served
	lost     int            // terms that ended because the lease was not renewed in time
	reasons  map[string][]string
	changed  chan struct{} // closed and replaced at each change of the three
	forbid   func(r *http.Request) bool
	drain    chan struct{} // Serve waits for it after stop, if not nil
	stopHold map[string]context.CancelFunc
	holds    sync.WaitGroup
	base     context.Context
}

var errCut = errors.New("connection cut by the test")

// network carries the requests of a replica, and can fail.
type network struct {
	*replica
	next http.RoundTripper
}

type cutBody struct {
	cancel context.CancelFunc
}

func (n network) RoundTrip(r *http.Request) (*http.Response, error) {
	if n.cut.Load() {
		return nil, errCut
	}
	if n.forbid != nil && n.forbid(r) {
		body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"forbidden by the test"}`
		return &http.Response{StatusCode: 403, Status: "403 Forbidden", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: http.Header{"Content-Type": {"application/json"}}, Body: readCloser{strings.NewReader(body)}}, nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	b := &cutBody{cancel}
	n.mu.Lock()
	n.conns[b] = true
	n.mu.Unlock()
	answer, err := n.next.RoundTrip(r.WithContext(ctx))
	if lose := n.lose.Load(); err == nil && lose != nil && (r.Method == http.MethodPost || r.Method == http.MethodPut) {
		if err := (*lose)(); err != nil {
			answer.Body.Close()
			return nil, err
		}
	}
	return answer, err
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// cutOff makes everything fail, also what is in flight.
func (r *replica) cutOff() {
	r.cut.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	for b := range r.conns {
		b.cancel()
	}
}

// replica starts a Leases; options change what it is started with.
func (w *world) replica(options ...func(*Options)) *replica {
	w.t.Helper()
	return w.replicaThat(nil, options...)
}

func (w *world) replicaThat(forbid func(*http.Request) bool, options ...func(*Options)) *replica {
	w.t.Helper()
	w.replicas++
	r := &replica{w: w, conns: map[*cutBody]bool{}, serving: map[string]*Term{}, terms: map[string]int{}, reasons: map[string][]string{},
		changed: make(chan struct{}), stopHold: map[string]context.CancelFunc{}, forbid: forbid}
	config := w.plane.RESTConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return network{r, next} })
	kube, err := kubernetes.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		w.t.Fatal(err)
	}
	o := Options{Kube: kube, Identity: fmt.Sprintf("replica-%d_%s", w.replicas, NewIdentity()), Namespace: w.namespace}
	quick(&o)
	for _, f := range options {
		f(&o)
	}
	if r.Leases, err = New(o); err != nil {
		w.t.Fatal(err)
	}
	_, base := ktesting.NewTestContext(w.t)
	base = klog.NewContext(w.ctx, klog.FromContext(base).WithName(fmt.Sprintf("replica-%d", w.replicas)))
	running, stopRun := context.WithCancel(base)
	r.base = base
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.Run(running); err != nil {
			w.t.Error(err)
		}
	}()
	r.stop = sync.OnceFunc(func() {
		r.mu.Lock()
		for _, stop := range r.stopHold {
			stop()
		}
		r.mu.Unlock()
		r.holds.Wait()
		stopRun()
		<-ended
	})
	w.t.Cleanup(r.stop)
	return r
}

// hold competes for drivers; what Serve does is: to wait for stop.
func (r *replica) hold(drivers ...string) {
	for _, d := range drivers {
		r.holdWhile(d, nil)
	}
}

// holdWhile competes for a driver that can be called from the replica as said; nil: always.
func (r *replica) holdWhile(d string, says *ability) {
	ctx, cancel := context.WithCancel(r.base)
	candidacy := Candidacy{Driver: d, Lease: r.w.lease(d),
		Serve:   func(stop context.Context, t *Term) error { return r.serve(d, stop, t) },
		Waiting: func(reason string) { r.note(func() { r.reasons[d] = append(r.reasons[d], reason) }) },
	}
	if says != nil {
		candidacy.Reach = says.get
	}
	r.mu.Lock()
	r.stopHold[d] = cancel
	r.mu.Unlock()
	r.holds.Go(func() {
		if err := r.Hold(ctx, candidacy); err != nil {
			r.w.t.Errorf("hold %s: %v", d, err)
		}
	})
}

func (r *replica) note(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *replica) serve(driver string, stop context.Context, t *Term) error {
	r.note(func() { r.serving[driver] = t; r.terms[driver]++ })
	<-stop.Done()
	if r.drain != nil {
		<-r.drain
	}
	r.note(func() {
		delete(r.serving, driver)
		if t.isLost() {
			r.lost++
		}
	})
	return nil
}

// await blocks until the condition holds; the replica is locked while it is asked.
func (r *replica) await(what string, condition func() bool) {
	r.w.t.Helper()
	for {
		r.mu.Lock()
		ok, changed := condition(), r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-r.w.ctx.Done():
			r.w.t.Fatalf("%s: did not come about; reasons to wait: %v", what, r.reasons)
		}
	}
}

// term waits until the driver is served by the replica.
func (r *replica) term(driver string) (t *Term) {
	r.w.t.Helper()
	r.await("serve "+driver, func() bool { t = r.serving[driver]; return t != nil })
	return t
}

func (r *replica) idle(driver string) {
	r.w.t.Helper()
	r.await("end of "+driver, func() bool { return r.serving[driver] == nil })
}

// waitsFor waits until the last reason contains the text.
func (r *replica) waitsFor(driver, text string) {
	r.w.t.Helper()
	r.await("wait because "+text, func() bool {
		all := r.reasons[driver]
		return len(all) > 0 && strings.Contains(all[len(all)-1], text)
	})
}

func (r *replica) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.serving)
}

func (w *world) lease(driver string) Name { return Name{w.namespace, registry.LeaseName(driver)} }

// get reads the lease from the API server.
func (w *world) get(driver string) *coordinationv1.Lease {
	w.t.Helper()
	l, err := w.kube.CoordinationV1().Leases(w.namespace).Get(w.ctx, registry.LeaseName(driver), metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *world) holder(driver string) string {
	w.t.Helper()
	return ptr.Deref(w.get(driver).Spec.HolderIdentity, "")
}
