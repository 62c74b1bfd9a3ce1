package tracing

import (
	"crypto/sha256"
	"os"
	"strconv"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// evenly gives a Sampler the hash of a trace ID instead of the trace ID. The ratio of the SDK reads bits of a trace ID
// that must be random, and of a UID the first of them are always 10: they are the variant of the UUID (RFC 9562).
type evenly struct{ sdktrace.Sampler }

// ShouldSample implements sdktrace.Sampler. All processes decide the same for a VolumeAttachment.
func (s evenly) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	sum := sha256.Sum256(p.TraceID[:])
	copy(p.TraceID[:], sum[:])
	return s.Sampler.ShouldSample(p)
}

// samplerOf returns the sampler of the environment if it is a ratio, otherwise nil: the SDK has the other samplers, and
// reports a value that it does not know.
func samplerOf(environment func(string) string) sdktrace.Sampler {
	ratio, err := strconv.ParseFloat(strings.TrimSpace(environment("OTEL_TRACES_SAMPLER_ARG")), 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		return nil
	}
	sampler := evenly{sdktrace.TraceIDRatioBased(ratio)}
	switch strings.ToLower(strings.TrimSpace(environment("OTEL_TRACES_SAMPLER"))) {
	case "traceidratio":
		return sampler
	case "parentbased_traceidratio":
		return sdktrace.ParentBased(sampler)
	}
	return nil
}

// withSampler sets the sampler of the environment.
func withSampler() sdktrace.TracerProviderOption { return sdktrace.WithSampler(samplerOf(os.Getenv)) }
