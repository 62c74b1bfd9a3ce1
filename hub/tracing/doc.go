// Package tracing sends attaches and detaches to an OpenTelemetry collector, as spans by OTLP over gRPC.
//
// The trace ID is the UID of the VolumeAttachment: its 16 bytes. So all that any replica, before or after a restart,
// and any driver that takes the W3C trace context does for one VolumeAttachment is in one trace. An attach or detach
// is a span, and its steps are the children of that span. A child is sent when it has ended, the attach or detach when
// it has succeeded. Its span ID follows from what it is, so that the children that a former process has sent are
// children of the span that this process sends.
//
// Nothing here blocks: spans wait in a queue of bounded length, and a span that finds it full is dropped. A nil Tracer,
// and all that it returns, is ready for use and does nothing.
//
// The package knows nothing of secrets: texts that it gets must be redacted and bounded.
package tracing
