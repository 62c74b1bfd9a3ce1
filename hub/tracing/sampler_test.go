package tracing

import (
	"errors"
	"math"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// traced returns which of the operations are sent, with a sampler of the environment.
func traced(t *testing.T, sampler, arg string, uids []string) map[string]bool {
	t.Helper()
	t.Setenv("OTEL_TRACES_SAMPLER", sampler)
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", arg)
	recorder := tracetest.NewSpanRecorder()
	tracer := newTracer(sdktrace.WithSpanProcessor(recorder))
	for _, uid := range uids {
		s := tracer.Start(Operation{Name: "attach", UID: uid, Began: began})
		s.Child("write", "finalizers", began, began, "")
		s.End(began, 1, "")
	}
	sent, spans := map[string]bool{}, map[string]int{}
	for _, s := range recorder.Ended() {
		spans[s.SpanContext().TraceID().String()]++
	}
	for _, uid := range uids {
		n := spans[TraceID(uid).String()]
		if sent[uid] = n == 2; n == 1 {
			t.Errorf("%s: only a part of the trace of %s is sent", sampler, uid)
		}
	}
	return sent
}

func TestARatioOfTheOperationsIsTraced(t *testing.T) {
	uids := make([]string, 10_000)
	for i := range uids {
		uids[i] = string(uuid.NewUUID()) // as the API server makes them
	}
	for arg, want := range map[string]float64{"0": 0, "0.01": 0.01, " 0.1 ": 0.1, "0.5": 0.5, "0.75": 0.75, "0.9": 0.9, "1": 1} {
		var before map[string]bool
		for _, sampler := range []string{"traceidratio", "parentbased_traceidratio", " ParentBased_TraceIDRatio"} {
			sent := traced(t, sampler, arg, uids)
			n := 0
			for uid, is := range sent {
				if is {
					n++
				}
				if before != nil && before[uid] != is {
					t.Fatalf("two processes with the ratio %s differ about %s", arg, uid)
				}
			}
			if got := float64(n) / float64(len(uids)); math.Abs(got-want) > 0.03 {
				t.Errorf("%s %s: %.3f of the operations are traced", sampler, arg, got)
			}
			before = sent
		}
	}
}

func TestASamplerThatIsNotKnownIsReportedAndAllIsTraced(t *testing.T) {
	t.Cleanup(func() { otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {})) })
	for _, c := range []struct{ sampler, arg, want string }{
		{"sometimes", "0.5", "unsupported sampler: sometimes"},
		{"traceidratio", "half", "parsing sampler argument"},
		{"traceidratio", "2", "invalid trace ID ratio"},
		{"parentbased_traceidratio", "NaN", ""},
		{"traceidratio", "", "parsing sampler argument"},
	} {
		var reported error
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { reported = errors.Join(reported, err) }))
		if sent := traced(t, c.sampler, c.arg, []string{uid}); !sent[uid] {
			t.Errorf("%s %s: nothing is traced", c.sampler, c.arg)
		}
		if c.want != "" && (reported == nil || !strings.Contains(reported.Error(), c.want)) {
			t.Errorf("%s %s: reported %v, want %q", c.sampler, c.arg, reported, c.want)
		}
	}
}
