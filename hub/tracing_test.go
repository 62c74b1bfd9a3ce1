package hub_test

import (
	"context"
	"encoding/hex"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/tracing"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// collector is an OpenTelemetry collector: it keeps the spans that it gets.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans []*tracev1.Span // guarded by mu
}

// startCollector returns a collector that listens, and its address.
func startCollector(t testing.TB) (*collector, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server := &collector{}, grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return c, listener.Addr().String()
}

// Export implements collectorv1.TraceServiceServer.
func (c *collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// trace returns the spans of a trace, by their names.
func (c *collector) trace(id string) map[string][]*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans := map[string][]*tracev1.Span{}
	for _, s := range c.spans {
		if hex.EncodeToString(s.GetTraceId()) == id {
			spans[s.GetName()] = append(spans[s.GetName()], s)
		}
	}
	return spans
}

// attribute returns an attribute of a span, nil if it has none of that name.
func attribute(s *tracev1.Span, key string) *commonv1.AnyValue {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue()
		}
	}
	return nil
}

// newTracer returns a tracer that sends to a collector.
func newTracer(t testing.TB, address string) *tracing.Tracer {
	t.Helper()
	endpoint, err := tracing.ParseEndpoint("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	tracer, err := tracing.New(t.Context(), endpoint, "test", "v0")
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

// flushing runs a tracer. What is returned sends the spans that wait.
func flushing(t *testing.T, tracer *tracing.Tracer) (flush func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tracer.Run(ctx) }()
	flush = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(flush)
	return flush
}

// traceparents are the contexts that a driver got with its calls, by method.
type traceparents struct {
	mu  sync.Mutex
	got map[string][]string // guarded by mu
}

func (p *traceparents) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	p.mu.Lock()
	method := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]
	p.got[method] = append(p.got[method], md.Get("traceparent")...)
	p.mu.Unlock()
	return handle(ctx, request)
}

func (p *traceparents) of(method fakecsi.Method) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got[string(method)])
}

func attachedFor(t *testing.T, w *world, driver string) *storagev1.VolumeAttachment {
	t.Helper()
	va := w.volume("v", driver, w.node("n", driver))
	w.create(va)
	w.waitAllAttached(1)
	return w.get(va.Name)
}

func TestSpansOfAnAttachAndADetachReachTheCollectorAndTheDriverInOneTrace(t *testing.T) {
	w := newWorld(t)
	seen := &traceparents{got: map[string][]string{}}
	w.intercept = seen.intercept
	driver, backend := w.driver("d", fakecsi.Options{})
	got, address := startCollector(t)
	w.options.Tracer = newTracer(t, address)
	flush := flushing(t, w.options.Tracer)
	stop := w.start()
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal, Message: "no", Count: 1}}})
	before := time.Now().Add(-time.Minute)
	va := attachedFor(t, w, driver)
	w.delete(testbed.VolumeAttachment{Name: va.Name})
	w.waitNoneLeft()
	stop()
	flush()

	id := strings.ReplaceAll(string(va.UID), "-", "")
	spans := got.trace(id)
	const publish, unpublish = "csi.v1.Controller/ControllerPublishVolume", "csi.v1.Controller/ControllerUnpublishVolume"
	for name, want := range map[string]int{"attach": 1, "detach": 1, publish: 2, unpublish: 1} {
		if len(spans[name]) != want {
			t.Errorf("%d spans are named %s, want %d; all: %v", len(spans[name]), name, want, spans)
		}
	}
	if t.Failed() {
		return
	}
	attach, detach := spans["attach"][0], spans["detach"][0]
	for key, want := range map[string]string{"k8s.volumeattachment.name": va.Name, "k8s.volumeattachment.uid": string(va.UID), "k8s.node.name": va.Spec.NodeName,
		"csi.driver": driver, "csi.volume.handle": "v", "k8s.persistentvolume.name": *va.Spec.Source.PersistentVolumeName} {
		for _, s := range []*tracev1.Span{attach, detach} {
			if got := attribute(s, key).GetStringValue(); got != want {
				t.Errorf("%s of %s is %q, want %q", key, s.GetName(), got, want)
			}
		}
	}
	if tries := attribute(attach, "attach_hub.tries").GetIntValue(); tries != 2 {
		t.Errorf("%d tries of the attach, want 2", tries)
	}
	for _, s := range slices.Concat(spans["write"], spans[publish]) {
		if parent := string(s.GetParentSpanId()); parent != string(attach.GetSpanId()) && parent != string(detach.GetSpanId()) {
			t.Errorf("the parent of %v is neither the attach nor the detach", s)
		}
	}
	failed := spans[publish][0]
	if code := attribute(failed, "rpc.grpc.status_code").GetIntValue(); code != int64(codes.Internal) || failed.GetStatus().GetCode() != tracev1.Status_STATUS_CODE_ERROR ||
		!strings.Contains(failed.GetStatus().GetMessage(), "no") {
		t.Errorf("the call that failed has code %d, status %v", code, failed.GetStatus())
	}
	if began := time.Unix(0, int64(attach.GetStartTimeUnixNano())); began.Before(before) || !began.Equal(va.CreationTimestamp.Time) {
		t.Errorf("the attach began at %v, want the creation of the VolumeAttachment, %v", began, va.CreationTimestamp)
	}
	for method, calls := range map[fakecsi.Method][]*tracev1.Span{fakecsi.ControllerPublishVolume: spans[publish], fakecsi.ControllerUnpublishVolume: spans[unpublish]} {
		var want []string
		for _, s := range calls {
			want = append(want, "00-"+id+"-"+hex.EncodeToString(s.GetSpanId())+"-01")
		}
		if got := seen.of(method); !slices.Equal(got, want) {
			t.Errorf("the driver got traceparent %q with %s, want %q", got, method, want)
		}
	}
}

func TestTheSpanOfAnAttachThatIsNotRequiredAnyMoreEnds(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	got, address := startCollector(t)
	w.options.Tracer = newTracer(t, address)
	flush := flushing(t, w.options.Tracer)
	stop := w.start()
	va := testbed.VolumeAttachment{Name: w.name("x"), Driver: driver, Node: w.node("m", driver), PersistentVolume: "missing"}
	w.create(va)
	failed := w.waitForOne(va.Name, "an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.AttachError != nil })
	id := strings.ReplaceAll(string(failed.UID), "-", "")
	w.delete(va)
	w.waitNoneLeft()
	attachedFor(t, w, driver) // by then the hub knows of the deletion
	stop()
	flush()
	spans := got.trace(id)
	if len(spans["attach"]) != 1 || len(spans["read"]) == 0 {
		t.Fatalf("spans %v", spans)
	}
	attach := spans["attach"][0]
	if s := attach.GetStatus(); s.GetCode() != tracev1.Status_STATUS_CODE_ERROR || s.GetMessage() != "not required any more" {
		t.Errorf("the attach has status %v", s)
	}
	for _, s := range spans["read"] {
		if string(s.GetParentSpanId()) != string(attach.GetSpanId()) {
			t.Errorf("the parent of %v is not the attach", s)
		}
	}
}

func TestWithoutACollectorTheDriverGetsNoTraceContext(t *testing.T) {
	w := newWorld(t)
	seen := &traceparents{got: map[string][]string{}}
	w.intercept = seen.intercept
	driver, _ := w.driver("d", fakecsi.Options{})
	w.start()
	attachedFor(t, w, driver)
	if got := seen.of(fakecsi.ControllerPublishVolume); len(got) > 0 {
		t.Errorf("the driver got traceparent %q", got)
	}
}

func TestACollectorThatIsAwayDelaysNothing(t *testing.T) {
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	listener, err := net.Listen("tcp", "127.0.0.1:0") // it accepts no connection
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	w.options.Tracer = newTracer(t, listener.Addr().String())
	stop := w.start()
	va := attachedFor(t, w, driver)
	w.delete(testbed.VolumeAttachment{Name: va.Name})
	w.waitNoneLeft()
	stop()
}
