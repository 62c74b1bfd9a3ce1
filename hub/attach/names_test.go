package attach

import (
	"strconv"
	"testing"
)

// The status asks for the finalizer of each driver that a VolumeAttachment names.
func TestFinalizersOfInventedDriversTakeBoundedMemory(t *testing.T) {
	for i := range 3 * keptFinalizers {
		if got, want := Finalizer("invented."+strconv.Itoa(i)), "external-attacher/invented-"+strconv.Itoa(i); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	kept := 0
	knownFinalizers.Range(func(any, any) bool { kept++; return true })
	if kept > keptFinalizers {
		t.Errorf("%d are kept", kept)
	}
}
