package tests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// replica is one place at which a hub process runs, one after the other.
type replica struct {
	trial *trial
	name  string
	lives int

	mu       sync.Mutex
	process  *process // nil: none runs; guarded by mu
	leaseCut bool     // requests for leases fail; guarded by mu
}

// process is one life of a hub.
type process struct {
	replica *replica
	name    string
	hub     *hub.Hub
	cut     context.Context // ends when the process crashes: nothing leaves it any more
	crash   func()
	stop    func() // blocks until it has ended

	mu   sync.Mutex
	lose []func() // each breaks a connection; guarded by mu
}

// start starts a process if none runs.
func (r *replica) start() {
	t := r.trial
	if r.runs() {
		return
	}
	r.lives++
	p := &process{replica: r, name: fmt.Sprintf("%s.%d", r.name, r.lives)}
	t.say("START %s", p.name)
	p.cut, p.crash = context.WithCancel(t.t.Context())
	kube := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://fakekube", Transport: p, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}})
	options := hub.Options{Kube: kube, Metrics: status.NewMetrics(), Grace: 10 * time.Second, Connect: p.connect}
	ctx, cancel := context.WithCancel(klog.NewContext(t.t.Context(), t.logger(p.name)))
	var running sync.WaitGroup
	var leases *lease.Leases
	leasing, endLeasing := context.WithCancel(context.WithoutCancel(ctx))
	if t.scenario != alone {
		var err error
		leases, err = lease.New(lease.Options{Kube: kube, Identity: p.name, Namespace: "hub",
			Duration: time.Minute, RenewDeadline: 45 * time.Second, RetryPeriod: 20 * time.Second})
		if err != nil {
			t.t.Fatal(err)
		}
		options.Leases, options.LeaseNamespace, options.LeaseDuration = leases, "hub", time.Minute
		running.Go(func() {
			if err := leases.Run(leasing); err != nil {
				t.fail("the leases of %s ended with %v", p.name, err)
			}
		})
	}
	var err error
	if p.hub, err = hub.New(options); err != nil {
		t.t.Fatal(err)
	}
	updates := make(chan registry.Snapshot, 1)
	updates <- registry.Snapshot{virtualDriver: t.driver}
	running.Go(func() {
		defer endLeasing()
		if err := p.hub.Run(ctx, updates); err != nil {
			t.fail("%s ended with %v", p.name, err)
		}
	})
	p.stop = sync.OnceFunc(func() { cancel(); running.Wait(); p.crash() })
	t.t.Cleanup(p.stop)
	r.set(p)
}

// logger keeps what a hub says in the trace, if that is wanted.
func (t *trial) logger(process string) klog.Logger {
	if !t.logs {
		return logr.Discard()
	}
	return ktesting.NewLogger(traceOf{t, process}, ktesting.NewConfig(ktesting.Verbosity(4)))
}

type traceOf struct {
	trial   *trial
	process string
}

func (l traceOf) Helper()         {}
func (l traceOf) Log(args ...any) { l.trial.say("log of %s: %s", l.process, fmt.Sprint(args...)) }

func (r *replica) set(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.process = p
}

func (r *replica) get() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process
}

func (r *replica) runs() bool { return r.get() != nil }

// works says whether the replica works for the driver now.
func (r *replica) works() bool {
	p := r.get()
	if p == nil {
		return false
	}
	for _, d := range p.hub.Drivers() {
		if d.Up && d.State == status.StateReady && d.Lease.Mine {
			return true
		}
	}
	return false
}

// stop ends the process as Kubernetes does. It blocks until it has ended.
func (r *replica) stop() {
	if p := r.get(); p != nil {
		p.stop()
		r.set(nil)
	}
}

// crash ends the process in the middle of what it does: its connections break, and nothing leaves it any more.
func (r *replica) crash() {
	if p := r.get(); p != nil {
		p.crash()
		r.disconnect()
		p.stop()
		r.set(nil)
	}
}

// disconnect breaks the connections to the driver.
func (r *replica) disconnect() {
	p := r.get()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, lose := range p.lose {
		lose()
	}
	p.lose = nil
}

func (r *replica) setLeaseCut(to bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaseCut = to
}

func (r *replica) isLeaseCut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaseCut
}

var errCrashed = errors.New("the process has crashed")

// RoundTrip is the way of a process to the API server, with the faults on it.
func (p *process) RoundTrip(request *http.Request) (*http.Response, error) {
	t := p.replica.trial
	if p.cut.Err() != nil { // no answer: client-go takes errors of watches and waits, by the clock of the whole process
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	if strings.Contains(request.URL.Path, "/leases") {
		if p.replica.isLeaseCut() {
			return nil, errors.New("connection refused")
		}
		return t.api.RoundTrip(request)
	}
	if request.Method != http.MethodPatch && !isRead(request) {
		return t.api.RoundTrip(request)
	}
	fault := t.drawAPIFault()
	if fault != apiFine {
		t.say("  %s: %s %s meets a fault: %s", p.name, request.Method, shortPath(request), fault)
		object := strings.Split(shortPath(request), "/")[1]
		t.noteFault(object)
		defer t.noteFault(object)
	}
	switch fault {
	case apiHangs:
		return p.lost(request)
	case apiSlow:
		select {
		case <-time.After(time.Second):
		case <-request.Context().Done():
			return nil, request.Context().Err()
		case <-p.cut.Done():
			return nil, errCrashed
		}
	case apiFails, apiConflicts, apiOverloaded:
		return refused(request, fault), nil
	}
	var response *http.Response
	var err error
	if request.Method == http.MethodPatch {
		response, err = t.checkWrite(p, request)
	} else {
		response, err = t.api.RoundTrip(request)
	}
	if fault == apiLosesAnswer {
		return p.lost(request)
	}
	return response, err
}

// lost is what a client gets that is never answered.
func (p *process) lost(request *http.Request) (*http.Response, error) {
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	select {
	case <-timeout.C:
		return nil, errors.New("i/o timeout")
	case <-request.Context().Done():
		return nil, request.Context().Err()
	case <-p.cut.Done():
		return nil, errCrashed
	}
}

// isRead says whether a request is for one object.
func isRead(r *http.Request) bool {
	_, path, _ := strings.Cut(r.URL.Path, "/v1/")
	return r.Method == http.MethodGet && strings.Contains(path, "/")
}

func shortPath(r *http.Request) string {
	_, path, _ := strings.Cut(r.URL.Path, "/v1/")
	return path
}

// apiFault is what a request to the API server meets.
type apiFault string

const (
	apiFine        apiFault = ""
	apiHangs       apiFault = "no answer, no effect"
	apiLosesAnswer apiFault = "no answer after the effect"
	apiSlow        apiFault = "slow"
	apiFails       apiFault = "500"
	apiConflicts   apiFault = "409"
	apiOverloaded  apiFault = "429"
)

func (t *trial) drawAPIFault() apiFault {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.apiFaults || t.faults.IntN(2) == 0 {
		return apiFine
	}
	all := []apiFault{apiHangs, apiLosesAnswer, apiSlow, apiFails, apiConflicts, apiOverloaded}
	return all[t.faults.IntN(len(all))]
}

// noteFault notes that a request about an object has met a fault.
func (t *trial) noteFault(object string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, volume := range t.volumes {
		about := object == volume.name
		for _, node := range t.nodes {
			about = about || object == node.name || object == t.attachmentOf(volume.name, node.name).Name ||
				object == t.byHand(volume.name, node.name).Name
		}
		if about {
			t.metFault[volume.name] = time.Now()
		}
	}
}

// refused is the answer of an API server that does not do what is asked.
func refused(r *http.Request, fault apiFault) *http.Response {
	var code int
	fmt.Sscan(string(fault), &code)
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"injected"}`, code,
		map[apiFault]string{apiFails: "InternalError", apiConflicts: "Conflict", apiOverloaded: "TooManyRequests"}[fault])
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

// connect connects a process to the driver, as csiclient does: a driver that is not ready is not connected to.
func (p *process) connect(ctx context.Context, _ registry.Driver) (hubdriver.Session, error) {
	t, s := p.replica.trial, newBackendSession(p.replica.trial.backend)
	lost, cancel := context.WithCancel(p.cut)
	lose := func() { cancel(); s.Close() }
	s.around = func(ctx context.Context, c sessionCall, call func(context.Context) error) error {
		return p.call(ctx, lost, c, call)
	}
	err := s.Probe(ctx)
	if err == nil && t.isRefused() { // since, while the Probe was in flight
		err = errGone
	}
	if err != nil {
		lose()
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = append(p.lose, lose)
	return s, nil
}

// call makes a call that the rules allow. Calls that have begun go on after Close, and end with the connection.
func (p *process) call(ctx, lost context.Context, c sessionCall, call func(context.Context) error) error {
	t := p.replica.trial
	if t.isRefused() || lost.Err() != nil {
		return errGone
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(lost, cancel)()
	of := safety.Call{Method: safety.Method(c.method), Place: safety.Place{Driver: virtualDriver, Volume: c.volume, Node: c.node}}
	if c.volume != "" {
		t.say("  %s: %v", p.name, of)
		if !t.checkCall(of, c.mode) {
			<-ctx.Done() // virtual time stands still while calls are made without a pause
		}
	}
	err := call(ctx)
	if c.volume != "" {
		t.say("  %s: %v: %v", p.name, of, grpcstatus.Code(err))
	}
	if lost.Err() != nil {
		return errGone
	}
	return err
}

// isRefused says whether nobody answers at the driver's endpoint.
func (t *trial) isRefused() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused
}
