package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// Operation is an attach or a detach of a VolumeAttachment.
type Operation struct {
	Name             string // of the span: attach, detach or drift
	UID              string // of the VolumeAttachment
	VolumeAttachment string
	PersistentVolume string // "" for an inline volume
	VolumeHandle     string // "" if it is not known yet
	Node             string
	Driver           string
	Began            time.Time // when it was asked for
}

// Span is the span of an operation that lasts. Its methods may be called by one goroutine at a time.
type Span struct {
	tracer trace.Tracer
	span   trace.Span
}

// Start begins the span of an operation.
func (t *Tracer) Start(o Operation) *Span {
	if t == nil {
		return nil
	}
	ctx := context.WithValue(context.Background(), idsKey{}, idsOf(o))
	attributes := []attribute.KeyValue{
		attribute.String("k8s.volumeattachment.name", o.VolumeAttachment),
		attribute.String("k8s.volumeattachment.uid", o.UID),
		attribute.String("k8s.node.name", o.Node),
		attribute.String("csi.driver", o.Driver),
	}
	if o.PersistentVolume != "" {
		attributes = append(attributes, attribute.String("k8s.persistentvolume.name", o.PersistentVolume))
	}
	if o.VolumeHandle != "" {
		attributes = append(attributes, attribute.String("csi.volume.handle", o.VolumeHandle))
	}
	_, span := t.tracer.Start(ctx, o.Name, trace.WithTimestamp(o.Began), trace.WithAttributes(attributes...))
	return &Span{t.tracer, span}
}

// End ends and sends the span. tries is the number of its runs. failure says why it has ended without success, "" for
// success: then all runs but the last have failed.
func (s *Span) End(at time.Time, tries int, failure string) {
	if s == nil {
		return
	}
	if failure != "" {
		s.span.SetStatus(codes.Error, failure)
	}
	s.span.SetAttributes(attribute.Int("attach_hub.tries", tries))
	s.span.End(trace.WithTimestamp(at))
}

// Child sends a step that has ended. what and failure are for people; failure is "" for success.
func (s *Span) Child(name, what string, from, to time.Time, failure string) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	_, child := s.tracer.Start(trace.ContextWithSpan(context.Background(), s.span), name, trace.WithTimestamp(from),
		trace.WithAttributes(attribute.String("attach_hub.step", what)))
	if failure != "" {
		child.SetStatus(codes.Error, failure)
	}
	child.End(trace.WithTimestamp(to))
}

// Call is the span of a CSI call in flight.
type Call struct{ span trace.Span }

// service is the gRPC service of all calls for operations.
const service = "csi.v1.Controller"

// Call begins the span of a CSI call. The returned context carries it to the driver, as the gRPC metadata traceparent (W3C
// Trace Context).
func (s *Span) Call(ctx context.Context, method string, from time.Time) (context.Context, Call) {
	if s == nil {
		return ctx, Call{}
	}
	within, span := s.tracer.Start(trace.ContextWithSpan(context.Background(), s.span), service+"/"+method, trace.WithTimestamp(from),
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", method)))
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(within, carrier)
	for key, value := range carrier {
		ctx = metadata.AppendToOutgoingContext(ctx, key, value)
	}
	return ctx, Call{span}
}

// End ends and sends the span of a call. failure is the text of its error, "" for success.
func (c Call) End(at time.Time, code grpccodes.Code, failure string) {
	if c.span == nil {
		return
	}
	c.span.SetAttributes(attribute.Int("rpc.grpc.status_code", int(code)))
	if failure != "" {
		c.span.SetStatus(codes.Error, failure)
	}
	c.span.End(trace.WithTimestamp(at))
}
