package tracing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

func TestEndpointsOfACollector(t *testing.T) {
	for text, want := range map[string]Endpoint{
		"":                           {},
		"http://collector:4317":      {"collector:4317", "http"},
		"http://collector":           {"collector:4317", "http"},
		"https://collector.example/": {"collector.example:4317", "https"},
		"https://[fd00::1]":          {"[fd00::1]:4317", "https"},
		"collector:14317":            {"collector:14317", ""},
	} {
		if got, err := ParseEndpoint(text); got != want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"collector", ":4317", "collector:0", "collector:70000", "grpc://collector:4317", "http://", "http://collector/v1/traces",
		"http://user:password@collector", "http://collector?a=b", "collector:4317/v1", "http://collector:port", "a b:4317"} {
		if _, err := ParseEndpoint(text); err == nil || !strings.Contains(err.Error(), "is not the address of a collector") {
			t.Errorf("%s: error %v", text, err)
		}
	}
}

func TestTraceIDIsTheUID(t *testing.T) {
	if got := TraceID("0123abcd-4567-89ab-cdef-0123456789ab").String(); got != "0123abcd456789abcdef0123456789ab" {
		t.Errorf("trace ID %s", got)
	}
	if a, b := TraceID("uid-1"), TraceID("uid-2"); !a.IsValid() || a == b {
		t.Errorf("trace IDs %s and %s of UIDs that are not 16 bytes", a, b)
	}
}

const uid = "0123abcd-4567-89ab-cdef-0123456789ab"

var began = time.Date(2026, 11, 22, 20, 0, 0, 0, time.UTC)

func TestANewProcessSendsTheParentOfWhatItsPredecessorSent(t *testing.T) {
	former, latter := tracetest.NewSpanRecorder(), tracetest.NewSpanRecorder()
	o := Operation{Name: "attach", UID: uid, VolumeAttachment: "va", Began: began}
	newTracer(sdktrace.WithSpanProcessor(former)).Start(o).Child("write", "finalizers", began, began.Add(time.Second), "refused")
	o.Began = began.In(time.FixedZone("elsewhere", 3600))
	newTracer(sdktrace.WithSpanProcessor(latter)).Start(o).End(began.Add(time.Minute), 2, "")
	child, parent := former.Ended()[0], latter.Ended()[0]
	if child.Parent().SpanID() != parent.SpanContext().SpanID() || child.Parent().TraceID() != parent.SpanContext().TraceID() {
		t.Errorf("parent of the child is %v, the operation is %v", child.Parent(), parent.SpanContext())
	}
	if child.Status().Description != "refused" || child.EndTime().Sub(child.StartTime()) != time.Second {
		t.Errorf("child %+v", child)
	}
	o.Name = "detach"
	if idsOf(o).span == parent.SpanContext().SpanID() {
		t.Error("the detach has the span ID of the attach")
	}
}

func TestSamplerOfTheEnvironmentHolds(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	recorder := tracetest.NewSpanRecorder()
	s := newTracer(sdktrace.WithSpanProcessor(recorder)).Start(Operation{Name: "attach", UID: uid, Began: began})
	s.Child("write", "finalizers", began, began, "")
	ctx, call := s.Call(t.Context(), "ControllerPublishVolume", began)
	call.End(began, grpccodes.OK, "")
	s.End(began, 1, "")
	if n := len(recorder.Ended()); n > 0 {
		t.Errorf("%d spans", n)
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	if got := md.Get("traceparent"); len(got) != 1 || !strings.HasSuffix(got[0], "-00") {
		t.Errorf("traceparent %q, want one that is not sampled", got)
	}
}

func TestWithoutATracerNothingIsAllocatedOrSent(t *testing.T) {
	var off *Tracer
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		s := off.Start(Operation{})
		s.Child("write", "finalizers", began, began, "")
		called, call := s.Call(ctx, "ControllerPublishVolume", began)
		call.End(began, grpccodes.OK, "")
		s.End(began, 1, "")
		if called != ctx {
			t.Error("the context of the call has changed")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// exporter fails while it has an error, and blocks while it has a gate.
type exporter struct {
	err  error
	gate chan struct{}
}

func (e *exporter) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	if e.gate != nil {
		select {
		case <-e.gate:
		case <-ctx.Done():
		}
	}
	return e.err
}
func (e *exporter) Shutdown(context.Context) error { return nil }

func TestACollectorThatIsAwayIsLoggedOnceAndAgainWhenItIsBack(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	e := &exporter{}
	r := &reporting{SpanExporter: e, logger: logger, log: loglimit.New(10, time.Minute), endpoint: "collector:4317"}
	for i := range 30 {
		e.err = nil
		if i%10 > 4 {
			e.err = fmt.Errorf("refused %d", i)
		}
		if err := r.ExportSpans(t.Context(), nil); err != nil {
			t.Errorf("the SDK gets the error %v, and logs it again", err)
		}
	}
	var got []string
	for _, line := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		got = append(got, strings.Fields(line.Message)[0])
	}
	if want := "Failed The Failed The Failed"; strings.Join(got, " ") != want {
		t.Errorf("logged %q", got)
	}
}

func TestAnExporterThatHangsBlocksNobody(t *testing.T) {
	e := &exporter{gate: make(chan struct{}), err: errors.New("away")}
	tracer := newTracer(sdktrace.WithBatcher(e))
	for range 10_000 { // more than the queue has room for
		tracer.Start(Operation{Name: "attach", UID: uid, Began: began}).End(began, 1, "")
	}
	close(e.gate)
	if err := tracer.provider.Shutdown(t.Context()); err != nil && !errors.Is(err, e.err) {
		t.Error(err)
	}
}
