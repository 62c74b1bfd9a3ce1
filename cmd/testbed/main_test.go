package main

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// asTestbed, in the environment, makes the test binary be testbed itself.
const asTestbed = "TESTBED_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asTestbed) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestWrongCommandsGetOneClearError(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"fly"}, `unknown command "fly"`},
		{[]string{"demo", "now"}, `unknown command "now" for "testbed demo"`},
		{[]string{"sandbox", "kill", "fast"}, "source the env file"},
	} {
		var stderr strings.Builder
		if code := run(tt.args, io.Discard, &stderr); code != 1 {
			t.Errorf("%v: exit code %d", tt.args, code)
		}
		if got := stderr.String(); !strings.Contains(got, tt.want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%v: says %q, want one line with %q", tt.args, got, tt.want)
		}
	}
}
