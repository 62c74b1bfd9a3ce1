package panics_test

import (
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
)

func TestCatchReturnsThePanicWithItsStack(t *testing.T) {
	err := panics.Catch(func() { panic("odd answer") })
	if err == nil || !strings.Contains(err.Error(), "odd answer") || !strings.Contains(err.Error(), "panics_test.go") {
		t.Errorf("got %v, want the panic with its stack", err)
	}
	called := false
	if err := panics.Catch(func() { called = true }); err != nil || !called {
		t.Errorf("got %v, called %v, want no error of a function that returns", err, called)
	}
}
