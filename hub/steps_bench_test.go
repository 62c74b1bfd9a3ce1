package hub

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// BenchmarkSteps is the memory and the time of the steps of one attach, next to all else that an attach does.
func BenchmarkSteps(b *testing.B) {
	memory := newStepMemory(maxStepMemory)
	nothing := func() error { return nil }
	run := func(ctx context.Context, o *operation, err error) {
		o.runs(time.Now(), nil)
		_ = o.do(status.StepRead, "the objects", nothing)
		_ = o.do(status.StepWrote, "finalizers and notes", nothing)
		o.calls("ControllerPublishVolume", time.Now())
		o.answered(nil, err)
		_ = o.do(status.StepWrote, "the status", nothing)
		o.rests(err)
	}
	b.Run("attach", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			o := &operation{memory: memory, kind: status.Attach}
			o.at(status.StepCreated, "", time.Now())
			o.at(status.StepSeen, "", time.Now())
			run(b.Context(), o, nil)
			o.at(status.StepDone, "", time.Now())
			memory.release(o)
		}
	})
	b.Run("attach that fails 100 times", func(b *testing.B) {
		failure := errors.New("rpc error: code = Internal desc = the storage is full")
		b.ReportAllocs()
		for b.Loop() {
			o := &operation{memory: memory, kind: status.Attach}
			for range 100 {
				run(b.Context(), o, failure)
			}
			memory.release(o)
		}
	})
}
