package tests

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// logged returns the values of the lines with a message, by their keys.
func (v *virtual) logged(message string) []map[string]any {
	var lines []map[string]any
	for _, line := range v.log.Data() {
		if line.Message != message {
			continue
		}
		values := map[string]any{}
		pairs := slices.Concat(line.WithKVList, line.ParameterKVList)
		for i := 0; i < len(pairs); i += 2 {
			values[pairs[i].(string)] = pairs[i+1]
		}
		lines = append(lines, values)
	}
	return lines
}

func TestAtTheDefaultVerbosityTheFirstFailureOfAVolumeAndItsRecoveryAreOneLineEach(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.verbosity = 0
		v.register("n", "id-n")
		v.start()
		v.pass(time.Second)
		attach := func(name string) testbed.VolumeAttachment {
			v.create(testbed.PersistentVolume{Name: name, Driver: virtualDriver})
			va := v.attachment(name, "n")
			v.create(va)
			v.pass(5 * time.Second)
			return va
		}
		check := func(message string, n int, want map[string]any) {
			t.Helper()
			lines := v.logged(message)
			if len(lines) != n {
				t.Fatalf("%d lines say %q, want %d: %v", len(lines), message, n, lines)
			}
			for key, value := range want {
				if got := lines[n-1][key]; fmt.Sprint(got) != fmt.Sprint(value) {
					t.Errorf("%s: %s is %v, want %v", message, key, got, value)
				}
			}
			measured := []string{"retryIn", "err"}
			if want["code"] == nil {
				measured = []string{"duration"}
			}
			for _, key := range measured {
				if lines[n-1][key] == nil {
					t.Errorf("%s: there is no %s in %v", message, key, lines[n-1])
				}
			}
		}
		attach("healthy")
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.PermissionDenied}}})
		va := attach("v")
		keys := map[string]any{"driver": virtualDriver, "volumeAttachment": va.Name, "persistentVolume": "v", "node": "n", "volumeHandle": "v"}
		with := func(more map[string]any) map[string]any {
			for key, value := range keys {
				more[key] = value
			}
			return more
		}
		check("Attach failed, will retry", 1, with(map[string]any{"operation": "attach", "code": "PermissionDenied", "failures": 1}))
		tries := v.calls(fakecsi.ControllerPublishVolume, "v", "id-n")
		if tries < 2 {
			t.Errorf("%d tries in five seconds, want some", tries)
		}
		v.turn(fakecsi.Knobs{ClearFaults: true})
		v.pass(time.Minute)
		check("Attached volume", 1, with(map[string]any{"operation": "attach", "failures": tries}))

		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal, Count: 1}}})
		v.delete(va)
		v.pass(time.Minute)
		check("Detach failed, will retry", 1, with(map[string]any{"operation": "detach", "code": "Internal", "failures": 1}))
		check("Detached volume", 1, with(map[string]any{"operation": "detach", "failures": 1}))
		check("Attached volume", 1, nil)
	})
}

func TestManyFailingVolumesDoNotFloodTheLog(t *testing.T) {
	const volumes = 80
	inVirtualTime(t, func(v *virtual) {
		v.verbosity = 0
		v.register("n", "id-n")
		v.start()
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal}}})
		fail := func(name string) {
			v.create(testbed.PersistentVolume{Name: name, Driver: virtualDriver}, v.attachment(name, "n"))
		}
		for i := range volumes {
			fail(fmt.Sprint("v", i))
		}
		v.pass(time.Minute)
		fail("last")
		v.pass(time.Minute)
		lines, suppressed := v.logged("Attach failed, will retry"), 0
		for _, line := range lines {
			if n, ok := line["suppressed"]; ok {
				suppressed += n.(int)
			}
		}
		if len(lines) > 30 || len(lines)+suppressed != volumes+1 {
			t.Errorf("%d lines and %d suppressed for %d volumes", len(lines), suppressed, volumes+1)
		}
		if last := lines[len(lines)-1]; last["persistentVolume"] != "last" {
			t.Errorf("the last line is about %v", last["persistentVolume"])
		}
	})
}
