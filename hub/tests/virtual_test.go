package tests

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	eventrecord "k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/probes"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/race"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// virtualDriver is the driver of a virtual world.
const virtualDriver = "virtual.example.com"

// virtual is a hub whose hours take no time: API server and driver are in its memory,
// and clocks are those of a synctest bubble.
type virtual struct {
	objects
	api      *fakekube.API
	backend  *fakecsi.Backend
	driver   registry.Driver
	options  hub.Options
	events   *eventrecord.FakeRecorder
	hub      *hub.Hub                 // the one that was started last
	updates  chan<- registry.Snapshot // to that one
	probes   *probes.Probes
	observe  func(fakecsi.Event) // may be nil
	violates bool                // the test makes the hub break rules of the driver's books

	verbosity int             // of the logs of the hub that is started next
	log       ktesting.Buffer // of the hub that was started last

	// connect changes or refuses a connection to the driver. It gets how many were tried before. May be nil.
	connect func(ctx context.Context, before int, s *backendSession) error

	mu       sync.Mutex
	away     bool              // nobody answers at the endpoint; guarded by mu
	dials    int               // all tries to connect; guarded by mu
	sessions []*backendSession // those that succeeded; guarded by mu
}

// parallel has the tests that run beside others.
var parallel sync.Map

// inVirtualTime calls f with a virtual world that has no hub yet.
func inVirtualTime(t *testing.T, f func(v *virtual)) {
	t.Helper()
	if _, is := parallel.LoadOrStore(t, true); !is {
		t.Parallel()
	}
	synctest.Test(t, func(t *testing.T) {
		v := &virtual{}
		backend, err := fakecsi.New(fakecsi.Options{Name: virtualDriver, Observe: func(e fakecsi.Event) {
			if v.observe != nil {
				v.observe(e)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		v.api, v.backend, v.events, v.probes, v.verbosity = fakekube.New(), backend, eventrecord.NewFakeRecorder(1_000_000), new(probes.Probes), 2
		v.objects = objects{t: t, ctx: t.Context(), kube: v.api.Client(), cluster: testbed.NewCluster(v.api.Client())}
		v.driver = registry.Driver{Name: virtualDriver, Endpoint: "tcp://127.0.0.1:9", Settings: registry.DefaultSettings()}
		v.options = hub.Options{Kube: v.kube, Events: v.events, Metrics: status.NewMetrics(), Probes: v.probes, Grace: 10 * time.Second, Connect: v.dial}
		f(v)
		synctest.Wait()
		if err := v.backend.Books().Check(); err != nil && !v.violates {
			t.Error(err)
		}
	})
}

// start runs a hub until the returned function is called, which blocks until it has ended.
func (v *virtual) start() (stop func()) {
	v.t.Helper()
	logger := ktesting.NewLogger(v.t, ktesting.NewConfig(ktesting.Verbosity(v.verbosity), ktesting.BufferLogs(true)))
	v.log = logger.GetSink().(ktesting.Underlier).GetBuffer()
	return v.startLogging(logger)
}

// pass lets time pass, until all that can be done by then is done.
func (v *virtual) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// setKnobs changes how the driver behaves.
func (v *virtual) setKnobs(k fakecsi.Knobs) {
	v.t.Helper()
	if err := v.backend.Set(k); err != nil {
		v.t.Fatal(err)
	}
}

// calls are how many calls of a method have ended, for a volume at a node ID.
func (v *virtual) calls(m fakecsi.Method, volume, nodeID string) int {
	n := 0
	for _, c := range v.backend.Books().CallsOf(m, volume) {
		if c.Node == nodeID {
			n++
		}
	}
	return n
}

// eventsWith returns the Events that were recorded since it was last asked and that
// contain a text.
func (v *virtual) eventsWith(text string) []string {
	var found []string
	for {
		select {
		case e := <-v.events.Events:
			if strings.Contains(e, text) {
				found = append(found, e)
			}
		default:
			return found
		}
	}
}

// metric is the sum of a metric's series that have all values of labels, in what the hub shows to Prometheus.
func (v *virtual) metric(name string, values ...string) float64 {
	v.t.Helper()
	families, err := v.options.Metrics.Gatherer(virtualSource{v.hub}).Gather()
	if err != nil {
		v.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				if missing := func(value string) bool {
					return !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == value })
				}; !slices.ContainsFunc(values, missing) {
					sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// virtualSource is a hub without a process around it.
type virtualSource struct{ *hub.Hub }

func (virtualSource) Overview() status.Overview { return status.Overview{} }

const (
	publish   = fakecsi.ControllerPublishVolume
	unpublish = fakecsi.ControllerUnpublishVolume
)

// eachInVirtualTime calls f with a virtual world for each row of a table, by its name. The race detector makes a world several times
// as long: it watches one row, and all run without it.
func eachInVirtualTime[T any](t *testing.T, rows map[string]T, f func(v *virtual, row T)) {
	t.Helper()
	watched := false
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			race.OneRow(t, &watched)
			inVirtualTime(t, func(v *virtual) { f(v, row) })
		})
	}
}

func (v *virtual) startLogging(logger klog.Logger) (stop func()) {
	v.t.Helper()
	var updates chan registry.Snapshot
	v.hub, updates, stop = startHub(v.t, v.options, logger)
	v.updates = updates
	v.serve()
	return stop
}

// serve has the hub serve the driver as v.driver says by now.
func (v *virtual) serve() { v.updates <- registry.Snapshot{v.driver.Name: v.driver} }

// mode has the hub serve the driver in a mode.
func (v *virtual) mode(m registry.Mode) {
	v.driver.Mode = m
	v.serve()
}

// failing are knobs that make all calls of a method fail.
func failing(m fakecsi.Method, code codes.Code) fakecsi.Knobs {
	return fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: m, Code: code}}}
}

// failingOnce are knobs that make one call of a method fail.
func failingOnce(m fakecsi.Method, code codes.Code) fakecsi.Knobs {
	return fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: m, Code: code, Count: 1}}}
}

// hanging are knobs that make all calls of a method hang.
func hanging(m fakecsi.Method) fakecsi.Knobs {
	return fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: m}}}
}

// healed are knobs that end all faults.
var healed = fakecsi.Knobs{ReleaseAll: true, ClearFaults: true}

// reply has the API server answer some requests with a status code from now on; with 0 they pass.
func (v *virtual) reply(code int, to func(fakekube.Request) bool) {
	v.api.Intercept(func(r fakekube.Request) int {
		if to(r) {
			return code
		}
		return 0
	})
}

// slow has some requests take a time.
func (v *virtual) slow(d time.Duration, which func(fakekube.Request) bool) {
	v.reply(0, func(r fakekube.Request) bool {
		if which(r) {
			time.Sleep(d)
		}
		return false
	})
}

// patches are requests to patch objects of a resource, or the one of a name.
func patches(resource string, name ...string) func(fakekube.Request) bool {
	return func(r fakekube.Request) bool {
		return r.Verb == "patch" && r.Resource == resource && (len(name) == 0 || r.Name == name[0])
	}
}

// reads are requests to read objects of a resource one by one.
func reads(resource string) func(fakekube.Request) bool {
	return func(r fakekube.Request) bool { return r.Verb == "get" && r.Resource == resource }
}

// patched returns how many writes of VolumeAttachments there were.
func (v *virtual) patched() int {
	return v.api.Count("patch", "volumeattachments") + v.api.Count("patch", "volumeattachments/status")
}

// requestsSince are the requests that were made after some others, those about leases left out.
func (v *virtual) requestsSince(before map[fakekube.Request]int) map[fakekube.Request]int {
	since := v.api.Requests()
	for r, n := range before {
		since[r] -= n
	}
	maps.DeleteFunc(since, func(r fakekube.Request, n int) bool { return n == 0 || r.Resource == "leases" })
	return since
}

// begun is how many calls of a method have begun.
func (v *virtual) begun(m fakecsi.Method) int { return v.backend.Books().Methods[m].Begun }

// ended is how many calls of a method have ended.
func (v *virtual) ended(m fakecsi.Method) int { return v.backend.Books().Methods[m].Ended }

// has reports whether the storage has a volume at a node ID.
func (v *virtual) has(volume, nodeID string) bool {
	return v.backend.Books().IsAttached(volume, nodeID)
}

// wantNothingAttached checks that the storage has no volume anywhere.
func (v *virtual) wantNothingAttached() {
	v.t.Helper()
	if at := v.backend.Books().Attached; len(at) > 0 {
		v.t.Errorf("attached: %v, want nothing", at)
	}
}

// wantCalls checks which calls for a volume have succeeded, like "publish id-n", and their order.
func (v *virtual) wantCalls(volume string, want ...string) {
	v.t.Helper()
	var calls []string
	for _, c := range v.backend.Books().Calls {
		if c.Volume == volume && c.Code == codes.OK {
			calls = append(calls, map[fakecsi.Method]string{publish: "publish ", unpublish: "unpublish "}[c.Method]+c.Node)
		}
	}
	if !slices.Equal(calls, want) {
		v.t.Errorf("calls for %s that succeeded: %q, want %q", volume, calls, want)
	}
}

// status returns what the hub shows of the driver.
func (v *virtual) status() status.Driver {
	v.t.Helper()
	all := v.hub.Drivers()
	if len(all) != 1 {
		v.t.Fatalf("the hub shows %d drivers", len(all))
	}
	return all[0]
}

func (v *virtual) wantState(when, state, reason string) {
	v.t.Helper()
	if d := v.status(); d.State != state || !strings.Contains(d.Reason, reason) {
		v.t.Errorf("%s the driver is %s: %q, want %s and a reason with %q", when, d.State, d.Reason, state, reason)
	}
}

// seen returns what the hub shows of a VolumeAttachment.
func (v *virtual) seen(name string) status.Attachment {
	v.t.Helper()
	found := v.hub.Attachments(status.AttachmentFilter{Name: name})
	if len(found) != 1 {
		v.t.Fatalf("the hub shows %d VolumeAttachments named %s", len(found), name)
	}
	return found[0]
}

// dangled returns what the status shows of volumes where no VolumeAttachment asks for them.
func (v *virtual) dangled() []status.DanglingPublication {
	v.t.Helper()
	var all []status.DanglingPublication
	n := 0
	for _, d := range v.hub.Drivers() {
		all, n = append(all, d.Dangling...), n+d.DanglingCount
	}
	if shown := v.metric("attach_hub_dangling_publications"); len(all) != n || shown != float64(n) {
		v.t.Errorf("%d are shown, %d counted, and the metric says %v", len(all), n, shown)
	}
	return all
}

// wantDangling checks how many dangling publications the hub shows.
func (v *virtual) wantDangling(n int) {
	v.t.Helper()
	if got := v.dangled(); len(got) != n {
		v.t.Fatalf("%d dangling publications, want %d: %+v", len(got), n, got)
	}
}

// dial connects a hub to the driver.
func (v *virtual) dial(ctx context.Context, _ registry.Driver) (hubdriver.Session, error) {
	v.mu.Lock()
	before, away := v.dials, v.away
	v.dials++
	v.mu.Unlock()
	if away {
		return nil, io.EOF
	}
	s := newBackendSession(v.backend)
	if v.connect != nil {
		if err := v.connect(ctx, before, s); err != nil {
			return nil, err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sessions = append(v.sessions, s)
	return s, nil
}

// cut ends the connection to the driver. Nobody answers at its endpoint until mend.
func (v *virtual) cut() {
	v.setAway(true)
	v.hangUp()
}

func (v *virtual) mend() { v.setAway(false) }

func (v *virtual) setAway(to bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.away = to
}

// hangUp ends the last connection to the driver.
func (v *virtual) hangUp() {
	if _, all := v.dialled(); len(all) > 0 {
		all[len(all)-1].end()
	}
}

// dialled returns how often the driver was dialled, and the sessions that came of it.
func (v *virtual) dialled() (int, []*backendSession) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.dials, slices.Clone(v.sessions)
}

// connections is how often the driver was dialled.
func (v *virtual) connections() int {
	n, _ := v.dialled()
	return n
}

// incapable has the driver lack PUBLISH_UNPUBLISH_VOLUME at the connections with some numbers, from 0; without a number at all.
func (v *virtual) incapable(numbers ...int) {
	v.connect = func(_ context.Context, before int, s *backendSession) error {
		s.info.Capabilities.PublishUnpublish = len(numbers) > 0 && !slices.Contains(numbers, before)
		return nil
	}
}

// sessionCall is a call to the driver over a session.
type sessionCall struct {
	method       fakecsi.Method
	volume, node string
	mode         csi.VolumeCapability_AccessMode_Mode // of a publish
}

// backendSession is a session to a Backend without a connection. It ends as csiclient's does: closed, it takes no call, and
// those in flight go on.
type backendSession struct {
	*fakecsi.Backend
	info  csiclient.Info
	ended context.Context
	end   func()
	late  atomic.Bool // who asks for Ended next is told that the session has not ended
	// around makes a call; nil makes it at once.
	around func(ctx context.Context, c sessionCall, call func(context.Context) error) error
	list   func() csiclient.Published // what the driver lists instead of what it has; may be nil
}

func newBackendSession(b *fakecsi.Backend) *backendSession {
	s := &backendSession{Backend: b}
	s.ended, s.end = context.WithCancel(context.Background())
	s.info.Capabilities = csiclient.Capabilities{PublishUnpublish: true, PublishReadonly: true, ListPublishedNodes: true}
	return s
}

func (s *backendSession) Info() csiclient.Info { return s.info }
func (s *backendSession) Close()               { s.end() }

func (s *backendSession) Ended() context.Context {
	if s.late.CompareAndSwap(true, false) {
		return context.Background()
	}
	return s.ended
}

var errGone = grpcstatus.Error(codes.Unavailable, "the connection has ended")

func (s *backendSession) call(ctx context.Context, c sessionCall, f func(context.Context) error) error {
	if s.ended.Err() != nil {
		return errGone
	}
	if s.around == nil {
		return f(ctx)
	}
	return s.around(ctx, c, f)
}

func (s *backendSession) Probe(ctx context.Context) error {
	return s.call(ctx, sessionCall{method: fakecsi.Probe}, func(ctx context.Context) error {
		response, err := s.Backend.Probe(ctx, &csi.ProbeRequest{})
		if err == nil && response.GetReady() != nil && !response.GetReady().GetValue() {
			return csiclient.ErrNotReady
		}
		return err
	})
}

func (s *backendSession) ListVolumes(ctx context.Context, _ int) (csiclient.Published, time.Duration, error) {
	published, began := csiclient.Published{}, time.Now()
	err := s.call(ctx, sessionCall{method: fakecsi.ListVolumes}, func(ctx context.Context) error {
		response, err := s.Backend.ListVolumes(ctx, &csi.ListVolumesRequest{})
		for _, e := range response.GetEntries() {
			published[e.GetVolume().GetVolumeId()] = csiclient.PublishedNodes{IDs: slices.Clone(e.GetStatus().GetPublishedNodeIds())}
		}
		return err
	})
	if s.list != nil {
		published = s.list()
	}
	return published, time.Since(began), err
}

func (s *backendSession) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (response *csi.ControllerPublishVolumeResponse, err error) {
	err = s.call(ctx, sessionCall{publish, r.VolumeId, r.NodeId, r.GetVolumeCapability().GetAccessMode().GetMode()}, func(ctx context.Context) (err error) {
		response, err = s.Backend.ControllerPublishVolume(ctx, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

func (s *backendSession) ControllerUnpublishVolume(ctx context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	err := s.call(ctx, sessionCall{method: unpublish, volume: r.VolumeId, node: r.NodeId}, func(ctx context.Context) error {
		_, err := s.Backend.ControllerUnpublishVolume(ctx, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}
