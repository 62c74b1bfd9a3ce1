package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// logged returns the values of the lines with a message, by their keys, and those of severity error with the key "err".
func (v *virtual) logged(message string) []map[string]any {
	var lines []map[string]any
	for _, line := range v.log.Data() {
		if line.Message != message {
			continue
		}
		values := map[string]any{}
		if line.Type == ktesting.LogError {
			values["err"] = line.Err
		}
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
			if want["cause"] == nil {
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
		check("Attach failed", 1, with(map[string]any{"operation": "attach", "cause": "PermissionDenied", "tries": 1}))
		tries := v.calls(fakecsi.ControllerPublishVolume, "v", "id-n")
		if tries < 2 {
			t.Errorf("%d tries in five seconds, want some", tries)
		}
		v.turn(fakecsi.Knobs{ClearFaults: true})
		v.pass(time.Minute)
		check("Attached volume", 1, with(map[string]any{"operation": "attach", "tries": tries + 1}))

		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal, Count: 1}}})
		v.delete(va)
		v.pass(time.Minute)
		check("Detach failed", 1, with(map[string]any{"operation": "detach", "cause": "Internal", "tries": 1}))
		check("Detached volume", 1, with(map[string]any{"operation": "detach", "tries": 2}))
		check("Attached volume", 1, nil)
	})
}

func TestVolumeThatFailsForHoursIsLoggedEveryTenMinutesAndWhenTheCauseChanges(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.verbosity, v.driver.Retry.Max = 0, 10*time.Second
		v.register("n", "id-n")
		v.start()
		fail := func(causes ...codes.Code) {
			v.turn(fakecsi.Knobs{ClearFaults: true})
			for i, code := range causes {
				f := fakecsi.Fault{Method: fakecsi.ControllerPublishVolume, Code: code}
				if i < len(causes)-1 {
					f.Count = 1
				}
				v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{f}})
			}
		}
		fail(codes.Internal)
		v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver}, v.attachment("v", "n"))
		check := func(after time.Duration, want ...string) {
			t.Helper()
			v.pass(after)
			lines, got := v.logged("Attach failed"), []string{}
			for _, line := range lines {
				got = append(got, fmt.Sprint(line["cause"]))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("the log has the causes %v, want %v", got, want)
			}
			last := lines[len(lines)-1]
			if tries := v.calls(fakecsi.ControllerPublishVolume, "v", "id-n"); last["err"] == nil || last["tries"].(int) > tries || len(want) > 1 && last["tries"].(int) < 50 {
				t.Errorf("after %d tries the last line is %v", tries, last)
			}
		}
		all := []string{"Internal"}
		check(9*time.Minute, all...)
		for range 11 {
			all = append(all, "Internal")
			check(10*time.Minute, all...)
		}
		fail(codes.PermissionDenied)
		check(5*time.Minute, append(all, "PermissionDenied")...)
	})
}

func TestEachChangeOfTheStateOfADriverIsOneLine(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.verbosity = 0
		v.leased()
		e := v.endpoint()
		e.away.Store(true)
		stop := v.start()
		seen := 0
		check := func(after time.Duration, want ...string) {
			t.Helper()
			v.pass(after)
			lines, got := v.logged("Driver state"), []string{}
			for _, line := range lines[seen:] {
				reason, _, _ := strings.Cut(fmt.Sprint(line["reason"]), " since")
				got = append(got, fmt.Sprint(line["mode"], " ", line["state"], ": ", reason))
			}
			if seen = len(lines); !slices.Equal(got, want) {
				t.Errorf("the log says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		mode := func(m registry.Mode) {
			v.driver.Mode = m
			v.updates <- registry.Snapshot{virtualDriver: v.driver}
		}
		check(time.Minute, "active Connecting: EOF")
		release := v.holdLease("another")
		e.mend()
		check(time.Minute, "active WaitingForLease: held by another")
		release()
		check(time.Minute, "active Ready: <nil>")
		e.cut()
		check(5*time.Second, "active Lost: the connection has ended")
		e.mend()
		check(time.Minute, "active Ready: <nil>")
		mode(registry.ModePaused)
		check(time.Minute, "active Draining: calls in flight may end", "paused Paused: paused by `mode: paused` in drivers.yaml")
		mode(registry.ModeObserve)
		check(time.Minute, "observe Ready: <nil>")
		mode(registry.ModeActive)
		check(time.Minute, "active WaitingForLease: waiting for the other replicas to announce themselves", "active Ready: <nil>")
		v.stealLease("another")
		check(time.Minute, "active Draining: calls in flight may end", "active WaitingForLease: held by another")
		if lost := v.logged("Lease lost, canceling calls in flight"); len(lost) != 1 {
			t.Errorf("%d lines about the lost lease: %v", len(lost), lost)
		}
		stop()
		check(0)
	})
}

func TestDriverThatHangsUpAllTheTimeDoesNotFloodTheLog(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.verbosity = 0
		e := v.endpoint()
		v.start()
		const minutes = 30
		began, ends := time.Now(), 0
		for time.Since(began) < minutes*time.Minute+20*time.Second { // the line of the last minute is not the last change
			v.pass(500 * time.Millisecond)
			if s := e.session.Swap(nil); s != nil {
				s.end()
				ends++
			}
		}
		v.pass(2 * time.Minute)
		lines, suppressed := v.logged("Driver state"), 0
		for _, line := range lines {
			if n, ok := line["suppressed"]; ok {
				suppressed += n.(int)
			}
		}
		if len(lines) < minutes || len(lines) > minutes+12 {
			t.Errorf("%d lines in %d minutes, in which the driver hung up %d times", len(lines), minutes, ends)
		}
		// A state whose line was suppressed is counted again at the next Probe or try to connect.
		if changes := 2*ends + 1; len(lines)+suppressed < changes || len(lines)+suppressed > changes+2*minutes {
			t.Errorf("%d lines and %d suppressed for %d changes", len(lines), suppressed, changes)
		}
		if last := lines[len(lines)-1]; last["state"] != "Ready" || v.status().State != "Ready" {
			t.Errorf("the driver is %s, and the last line is %v", v.status().State, last)
		}
		e.cut()
		v.pass(time.Minute)
		last := v.logged("Driver state")
		if got := last[len(last)-1]; got["state"] != "Lost" {
			t.Errorf("after the last change the last line is %v", got)
		}
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
		lines, suppressed := v.logged("Attach failed"), 0
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
