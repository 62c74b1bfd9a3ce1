package tracing

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// ids are the IDs of spans. It implements sdktrace.IDGenerator: those of an operation are in the context.
type ids struct{}

type idsKey struct{}

// spanIDs are the IDs of the span of an operation.
type spanIDs struct {
	trace trace.TraceID
	span  trace.SpanID
}

// NewIDs implements sdktrace.IDGenerator.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	of, _ := ctx.Value(idsKey{}).(spanIDs) // there always is one: only operations have no parent
	return of.trace, of.span
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	_, _ = rand.Read(id[:]) // it never returns an error
	return id
}

// idsOf returns the IDs of the span of an operation. Every process computes the same.
func idsOf(o Operation) (of spanIDs) {
	of.trace = TraceID(o.UID)
	sum := sha256.Sum256([]byte(cmp.Or(o.UID, o.VolumeAttachment) + " " + o.Name + " " + o.Began.UTC().String()))
	copy(of.span[:], sum[:])
	return of
}

// TraceID returns the trace ID of a VolumeAttachment: the bytes of its UID, or of its hash if the UID is not one of the
// 16 bytes that the API server makes.
func TraceID(uid string) (id trace.TraceID) {
	raw, err := hex.DecodeString(strings.ReplaceAll(uid, "-", ""))
	if err != nil || len(raw) != len(id) {
		sum := sha256.Sum256([]byte(uid))
		raw = sum[:len(id)]
	}
	copy(id[:], raw)
	return id
}
