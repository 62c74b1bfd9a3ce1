package tracing

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

// flushTimeout bounds the sending of the last spans when the process stops.
const flushTimeout = 5 * time.Second

// Tracer makes spans and sends them. Its methods do not block, except Run.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// New returns a Tracer that sends to a collector, nil for the zero Endpoint. It sends nothing yet, and does not wait for
// the collector. The variables OTEL_* of the environment that the SDK of OpenTelemetry reads hold for the rest: headers,
// certificates, sampler, length of the queue. New makes klog the log of the SDK in this process.
func New(ctx context.Context, e Endpoint, service, version string) (*Tracer, error) {
	if e == (Endpoint{}) {
		return nil, nil
	}
	logger := klog.FromContext(ctx)
	otel.SetLogger(logger.V(4))
	limiter := loglimit.New(10, time.Minute)
	otel.SetErrorHandler(&errorLog{logger: logger, log: limiter})
	exporter, err := otlptracegrpc.New(ctx, e.option())
	if err != nil {
		return nil, fmt.Errorf("prepare to send traces to %s: %w", e.Address, err)
	}
	// The last detector has precedence: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
	about, err := resource.New(ctx, resource.WithHost(), resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe this process in traces: check OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return newTracer(sdktrace.WithBatcher(&reporting{SpanExporter: exporter, logger: logger, log: limiter, endpoint: e.Address}), sdktrace.WithResource(about)), nil
}

func newTracer(options ...sdktrace.TracerProviderOption) *Tracer {
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithIDGenerator(ids{}), withSampler())...)
	return &Tracer{provider: provider, tracer: provider.Tracer("github.com/csi-attach-hub/csi-attach-hub/hub")}
}

// Run blocks until ctx ends, and then sends the spans that wait, for at most 5 seconds.
func (t *Tracer) Run(ctx context.Context) error {
	if t == nil {
		return nil
	}
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(last); err != nil {
		klog.FromContext(ctx).Info("Failed to send the last spans", "err", err)
	}
	return nil
}

// reporting logs that spans cannot be sent, and that they can be sent again: not an error for each batch.
type reporting struct {
	sdktrace.SpanExporter
	logger   klog.Logger
	log      *loglimit.Limiter
	endpoint string
	failing  bool // the SDK exports one batch at a time
}

// ExportSpans implements sdktrace.SpanExporter. It blocks until the collector has the spans, or the SDK's limits of time
// and tries are reached.
func (r *reporting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !r.failing:
		r.log.Info(r.logger, "Failed to send spans to the collector, dropping them; attaches and detaches go on", "endpoint", r.endpoint, "err", err)
	case err == nil && r.failing:
		r.log.Info(r.logger, "The collector takes spans again", "endpoint", r.endpoint)
	}
	r.failing = err != nil
	return nil
}

// errorLog logs errors of the SDK, such as a value of OTEL_TRACES_SAMPLER that it does not know.
type errorLog struct {
	logger klog.Logger
	log    *loglimit.Limiter
}

// Handle implements otel.ErrorHandler.
func (e *errorLog) Handle(err error) {
	e.log.Info(e.logger, "OpenTelemetry reported an error", "err", err)
}
