package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/race"
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

// suppressed is how many lines were left out before these.
func suppressed(lines []map[string]any) (n int) {
	for _, line := range lines {
		if more, ok := line["suppressed"]; ok {
			n += more.(int)
		}
	}
	return n
}

func TestAtTheDefaultVerbosityTheFirstFailureOfAVolumeAndItsRecoveryAreOneLineEach(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.verbosity = 0
		v.withNode("healthy", "v")
		v.start()
		v.pass(time.Second)
		check := func(message, operation string, tries int, cause any) {
			t.Helper()
			lines := v.logged(message)
			if len(lines) != 1 {
				t.Fatalf("%d lines say %q, want one: %v", len(lines), message, lines)
			}
			for key, value := range map[string]any{"driver": virtualDriver, "volumeAttachment": "v-n", "persistentVolume": "v", "node": "n", "volumeHandle": "v",
				"operation": operation, "tries": tries, "cause": cause} {
				if got := lines[0][key]; fmt.Sprint(got) != fmt.Sprint(value) {
					t.Errorf("%s: %s is %v, want %v", message, key, got, value)
				}
			}
			if failed := cause != nil; failed != (lines[0]["retryIn"] != nil && lines[0]["err"] != nil) || failed == (lines[0]["duration"] != nil) {
				t.Errorf("%s: %v", message, lines[0])
			}
		}
		v.attach("healthy")
		v.setKnobs(failing(publish, codes.PermissionDenied))
		va := v.attach("v")[0]
		v.pass(4 * time.Second)
		check("Attach failed", "attach", 1, "PermissionDenied")
		tries := v.calls(publish, "v", "id-n")
		if tries < 2 {
			t.Errorf("%d tries in five seconds, want some", tries)
		}
		v.setKnobs(healed)
		v.pass(time.Minute)
		check("Attached volume", "attach", tries+1, nil)
		v.setKnobs(failingOnce(unpublish, codes.Internal))
		v.delete(va)
		v.pass(time.Minute)
		check("Detach failed", "detach", 1, "Internal")
		check("Detached volume", "detach", 2, nil)
	})
}

func TestVolumeThatFailsForHoursIsLoggedEveryTenMinutesAndWhenTheCauseChanges(t *testing.T) {
	race.Skip(t, race.Hours)
	inVirtualTime(t, func(v *virtual) {
		v.verbosity, v.driver.Retry.Max = 0, 10*time.Second
		v.withNode("v")
		v.start()
		v.setKnobs(failing(publish, codes.Internal))
		v.create(v.attachment("v", "n"))
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
			if tries := v.calls(publish, "v", "id-n"); last["err"] == nil || last["tries"].(int) > tries || len(want) > 1 && last["tries"].(int) < 50 {
				t.Errorf("after %d tries the last line is %v", tries, last)
			}
		}
		all := []string{"Internal"}
		check(9*time.Minute, all...)
		for range 11 {
			all = append(all, "Internal")
			check(10*time.Minute, all...)
		}
		v.setKnobs(healed)
		v.setKnobs(failing(publish, codes.PermissionDenied))
		check(5*time.Minute, append(all, "PermissionDenied")...)
	})
}

func TestEachChangeOfTheStateOfADriverIsOneLine(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.verbosity = 0
		v.leased()
		v.cut()
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
		check(time.Minute, "active Connecting: EOF")
		release := v.holdLease("another")
		v.mend()
		check(time.Minute, "active WaitingForLease: held by another")
		release()
		check(time.Minute, "active Ready: <nil>")
		v.cut()
		check(5*time.Second, "active Lost: the connection has ended")
		v.mend()
		check(time.Minute, "active Ready: <nil>")
		v.mode(registry.ModePaused)
		check(time.Minute, "active Draining: calls in flight may end", "paused Paused: paused by `mode: paused` in drivers.yaml")
		v.mode(registry.ModeObserve)
		check(time.Minute, "observe Ready: <nil>")
		release = v.stealLease("another") // until the hub is announced: whether that takes a moment differs
		v.mode(registry.ModeActive)
		check(time.Minute, "active WaitingForLease: held by another")
		release()
		check(time.Minute, "active Ready: <nil>")
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
		v.start()
		const minutes = 30
		began, ends := time.Now(), 0
		for time.Since(began) < minutes*time.Minute+20*time.Second { // the line of the last minute is not the last change
			v.pass(500 * time.Millisecond)
			if _, all := v.dialled(); len(all) > ends {
				v.hangUp()
				ends = len(all)
			}
		}
		v.pass(2 * time.Minute)
		lines := v.logged("Driver state")
		suppressed := suppressed(lines)
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
		v.cut()
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
		v.setKnobs(failing(publish, codes.Internal))
		v.many("v", volumes)
		v.pass(time.Minute)
		v.many("last", 1)
		v.pass(time.Minute)
		lines := v.logged("Attach failed")
		if n := suppressed(lines); len(lines) > 30 || len(lines)+n != volumes+1 {
			t.Errorf("%d lines and %d suppressed for %d volumes", len(lines), n, volumes+1)
		}
		if last := lines[len(lines)-1]; last["persistentVolume"] != "last0" {
			t.Errorf("the last line is about %v", last["persistentVolume"])
		}
	})
}
