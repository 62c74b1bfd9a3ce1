package bench

import (
	"testing"
	"time"
)

func TestCallsThatNobodyNeedsCountToo(t *testing.T) {
	took := timing{elapsed: time.Second, took: make([]time.Duration, 2)}
	f := burst{
		attach: phase{timing: took, calls: calls{publish: 2, unpublish: 1}},
		detach: phase{timing: took, calls: calls{publish: 2, unpublish: 2}},
	}.figures()
	if f[AttachCalls] != 1.5 || f[DetachCalls] != 2 {
		t.Errorf("%v calls of an attach, %v of a detach, want 1.5 and 2", f[AttachCalls], f[DetachCalls])
	}
}
