package lease

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"

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
const testTimeout = 5 * time.Minute

// world is a namespace on a real API server, or an API in memory in virtual time.
type world struct {
	t         *testing.T
	ctx       context.Context
	plane     *testbed.ControlPlane // nil in virtual time
	api       *fakekube.API         // in virtual time
	kube      kubernetes.Interface
	namespace string
	replicas  int
	drivers   []string // in virtual time
	servers   *servers
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, plane: testbed.Shared(t), servers: newServers(t)}
	w.kube = w.plane.Clientset()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	w.ctx = klog.NewContext(ctx, klog.Background())
	w.namespace = w.makeNamespace()
	return w
}

// inVirtualTime calls f with a world whose processes have csi-attacher's settings.
func inVirtualTime(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, api: fakekube.New(), namespace: "hub", drivers: drivers(12), servers: newServers(t)}
		w.kube = w.api.Client()
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		t.Cleanup(cancel)
		w.ctx = klog.NewContext(ctx, klog.Logger{})
		f(w)
		synctest.Wait()
	})
}

func (w *world) makeNamespace() string {
	w.t.Helper()
	ns, err := w.kube.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "lease-"}}, metav1.CreateOptions{})
	must(w.t, err)
	return ns.Name
}

// long gives a lease a minute: tests allow 30 seconds of virtual time for a loss or a takeover, and so notice one that came from an expiry.
func long(o *Options) {
	o.Duration, o.RenewDeadline, o.RetryPeriod = time.Minute, 30*time.Second, 200*time.Millisecond
}

// lasting lets no lease expire within a test on the real API server.
func lasting(o *Options) { o.Duration, o.RenewDeadline = 2*testTimeout, testTimeout }

func alone(o *Options) { o.Alone = true }

func named(identity string) func(*Options) { return func(o *Options) { o.Identity = identity } }

// replica is one Leases with a connection of its own, which can be cut.
type replica struct {
	w *world
	*Leases
	cut   atomic.Bool                  // requests fail, and what is in flight ends
	blind atomic.Bool                  // Leases can be written, neither listed nor watched
	dead  atomic.Bool                  // the process was killed: it gets no answer, and serves nothing
	skew  time.Duration                // its clock is ahead of the others by that
	lose  atomic.Pointer[func() error] // called after a write was done: an error takes the place of the answer
	stop  func()                       // ends what it holds, then Run

	mu       sync.Mutex
	conns    map[*cutBody]bool
	serving  map[string]*Term
	terms    map[string]int // how often it served
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
	if n.dead.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if n.cut.Load() || n.blind.Load() && isView(r) {
		return nil, errCut
	}
	if writes := r.Method == http.MethodPost || r.Method == http.MethodPut; writes && n.skew != 0 {
		if err := skewTimes(r, n.skew); err != nil {
			return nil, err
		}
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

// skewTimes has the Lease that is written carry the time of another clock.
func skewTimes(r *http.Request, skew time.Duration) error {
	var l coordinationv1.Lease
	if err := json.NewDecoder(r.Body).Decode(&l); err != nil {
		return err
	}
	if l.Spec.RenewTime != nil {
		l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(skew)
	}
	body, err := json.Marshal(l)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return err
}

// cutOff makes everything fail, also what is in flight.
func (r *replica) cutOff() {
	r.cut.Store(true)
	r.interrupt()
}

func forbidding(forbid func(*http.Request) bool) func(*replica) {
	return func(r *replica) { r.forbid = forbid }
}

func (r *replica) setBlind(blind bool) {
	r.blind.Store(blind)
	r.interrupt()
}

// isView reports whether a request lists or watches Leases.
func isView(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/leases")
}

// kill ends the process as kill -9 does: its Leases stay.
func (r *replica) kill() {
	r.dead.Store(true)
	r.interrupt()
	r.mu.Lock()
	defer r.mu.Unlock()
	for d := range r.serving {
		r.w.servers.lost(d, r)
	}
}

// interrupt ends what is in flight.
func (r *replica) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for b := range r.conns {
		b.cancel()
	}
}

// replica starts a Leases; options change what it is started with.
func (w *world) replica(options ...func(*Options)) *replica {
	w.t.Helper()
	return w.replicaThat(func(*replica) {}, options...)
}

// start starts a replica that can call all drivers, and competes for them.
func (w *world) start(identity string, setup ...func(*replica)) *replica {
	w.t.Helper()
	r := w.replicaThat(func(r *replica) {
		for _, f := range setup {
			f(r)
		}
	}, named(identity))
	r.hold(w.drivers...)
	return r
}

// replicaThat is replica with something done before it runs.
func (w *world) replicaThat(setup func(*replica), options ...func(*Options)) *replica {
	w.t.Helper()
	w.replicas++
	r := &replica{w: w, conns: map[*cutBody]bool{}, serving: map[string]*Term{}, terms: map[string]int{}, reasons: map[string][]string{},
		changed: make(chan struct{}), stopHold: map[string]context.CancelFunc{}}
	setup(r)
	o := Options{Identity: fmt.Sprintf("replica-%d_%s", w.replicas, NewIdentity()), Namespace: w.namespace,
		Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 5 * time.Second}
	config, base := &rest.Config{Host: "http://fakekube", Transport: network{r, w.api}, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}, w.ctx
	if w.plane != nil {
		o.RetryPeriod = time.Second // a busy machine does not lose these leases
		config = rest.CopyConfig(w.plane.RESTConfig())
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return network{r, next} })
		_, base = ktesting.NewTestContext(w.t)
		base = klog.NewContext(w.ctx, klog.FromContext(base).WithName(fmt.Sprintf("replica-%d", w.replicas)))
	}
	o.Kube = kubernetes.NewForConfigOrDie(config)
	for _, f := range options {
		f(&o)
	}
	var err error
	if r.Leases, err = New(o); err != nil {
		w.t.Fatal(err)
	}
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
	r.w.servers.found(driver, r) // first: note wakes tests, which look at servers
	r.note(func() { r.serving[driver] = t; r.terms[driver]++ })
	<-stop.Done()
	if r.drain != nil {
		<-r.drain
	}
	r.w.servers.lost(driver, r)
	r.note(func() { delete(r.serving, driver) })
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

func (w *world) lease(driver string) Name { return Name{w.namespace, registry.LeaseName(driver)} }

// get reads the lease from the API server.
func (w *world) get(driver string) *coordinationv1.Lease {
	w.t.Helper()
	l, err := w.kube.CoordinationV1().Leases(w.namespace).Get(w.ctx, registry.LeaseName(driver), metav1.GetOptions{})
	must(w.t, err)
	return l
}

func (w *world) holder(driver string) string {
	w.t.Helper()
	return ptr.Deref(w.get(driver).Spec.HolderIdentity, "")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
