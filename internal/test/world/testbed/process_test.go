package testbed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// helperEnv makes the test binary run as one of the helpers below.
const helperEnv = "TESTBED_TEST_HELPER"

// runHelper is what the test binary does as a helper process.
func runHelper(name string) int {
	switch name {
	case "parent": // starts a child, prints its pid, and blocks
		child, err := StartProcess(context.Background(), ProcessOptions{
			Name: "child", Path: "/bin/sh", Args: []string{"-c", "echo up; exec sleep 1000"}, LogPath: os.DevNull, ReadyLine: "up",
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println(child.PID())
		<-child.Done()
	}
	return 1
}

// startShell runs a shell script that must say "up".
func startShell(t *testing.T, script string) (*Process, error) {
	t.Helper()
	p, err := StartProcess(t.Context(), ProcessOptions{
		Name:      "script",
		Path:      "/bin/sh",
		Args:      []string{"-c", script},
		LogPath:   filepath.Join(t.TempDir(), "log"),
		ReadyLine: "up",
	})
	if err == nil {
		KillAtEnd(t, p)
	}
	return p, err
}

func TestProcessIsReadyWhenItSaysSo(t *testing.T) {
	p, err := startShell(t, "echo starting; echo up at 1234; exec sleep 1000")
	if err != nil {
		t.Fatal(err)
	}
	if p.ReadyLine() != "up at 1234" {
		t.Errorf("ready line is %q", p.ReadyLine())
	}
	if log := p.LastLines(10); !strings.Contains(log, "starting") {
		t.Errorf("the log has no line of before: %q", log)
	}
	if p.ExitCode() != -1 {
		t.Errorf("a running process has exit code %d", p.ExitCode())
	}
}

func TestProcessThatEndsBeforeItIsReadyIsAnErrorWithItsLog(t *testing.T) {
	_, err := startShell(t, "echo no such config >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "no such config") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error is %v, want one with the exit status and the log", err)
	}
}

func TestProcessThatIsNeverReadyIsKilledWhenTheContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log := filepath.Join(t.TempDir(), "log")
	_, err := StartProcess(ctx, ProcessOptions{Name: "mute", Path: "/bin/sh", Args: []string{"-c", "exec sleep 1000"}, LogPath: log, ReadyLine: "up"})
	if err == nil || !strings.Contains(err.Error(), "until it is ready") {
		t.Errorf("error is %v", err)
	}
}

func TestStopReturnsTheExitOfTheProcess(t *testing.T) {
	tests := map[string]struct {
		script  string
		pause   bool
		grace   time.Duration
		code    int
		errLike string
	}{
		"clean":           {script: "trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done", grace: time.Minute, code: 0},
		"exit code":       {script: "trap 'exit 4' TERM; echo up; while :; do sleep 0.01; done", grace: time.Minute, code: 4, errLike: "exit status 4"},
		"paused":          {script: "trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done", pause: true, grace: time.Minute, code: 0},
		"ignores SIGTERM": {script: "trap '' TERM; echo up; while :; do sleep 0.01; done", grace: time.Millisecond, code: -1, errLike: "killed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := startShell(t, tt.script)
			if err != nil {
				t.Fatal(err)
			}
			if tt.pause {
				if err := p.Pause(); err != nil {
					t.Fatal(err)
				}
			}
			err = p.Stop(t.Context(), tt.grace)
			if tt.errLike == "" && err != nil {
				t.Errorf("stop: %v", err)
			}
			if tt.errLike != "" && (err == nil || !strings.Contains(err.Error(), tt.errLike)) {
				t.Errorf("stop gave %v, want %q", err, tt.errLike)
			}
			if p.ExitCode() != tt.code {
				t.Errorf("exit code %d, want %d", p.ExitCode(), tt.code)
			}
			if err := p.Signal(1); err != nil {
				t.Errorf("signal after the end: %v", err)
			}
		})
	}
}
