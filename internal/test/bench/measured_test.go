package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
)

func TestReportIsKeptAfterEachCaseThatWasMeasured(t *testing.T) {
	kept := []string{}
	full := errors.New("disk full")
	o := Options{Progress: io.Discard, Measured: func(r Report) error {
		kept = kept[:0]
		for _, c := range r.Cases {
			kept = append(kept, c.Name)
		}
		return full
	}}
	ctx, kill := context.WithCancel(t.Context())
	needsRoot := errors.New("needs root")
	cases := []Case{{Name: "first"}, {Name: "fails"}, {Name: "second"}, {Name: "ended"}, {Name: "never"}}
	before := map[string][]string{} // what was kept when a case began
	report, err := measureAll(ctx, o, cases, func(ctx context.Context, _ Options, c Case) (Result, error) {
		before[c.Name] = slices.Clone(kept)
		switch c.Name {
		case "fails":
			return Result{}, needsRoot
		case "ended":
			kill()
			return Result{}, context.Cause(ctx)
		}
		return Result{Name: c.Name}, nil
	})
	if !slices.Equal(before["second"], []string{"first"}) || !slices.Equal(before["ended"], []string{"first", "second"}) {
		t.Errorf("kept before each case: %v", before)
	}
	if _, begun := before["never"]; begun || len(report.Cases) != 2 {
		t.Errorf("cases begun: %v, in the report: %d; want none after the end, and 2", before, len(report.Cases))
	}
	for _, want := range []error{needsRoot, full, context.Canceled} {
		if !errors.Is(err, want) {
			t.Errorf("error %v is not %v", err, want)
		}
	}
}
