package main

import (
	"bytes"
	"strings"
	"testing"
)

// A word that is no subcommand must never start the hub.
func TestMistypedCommandsAndFlagsAreErrorsWithASuggestion(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"statsu", 1, `unknown command "statsu"; did you mean "status"?`},
		{"stat", 1, `unknown command "stat"; did you mean "status"?`},
		{"explian pod/x", 1, `unknown command "explian"; did you mean "explain"?`},
		{"Verison", 1, `unknown command "Verison"; did you mean "version"?`},
		{"--config drivers.yaml valdate", 1, `unknown command "valdate"; did you mean "validate"?`},
		{"frobnicate", 1, `unknown command "frobnicate"; see csi-attach-hub --help`},
		{"drivers.yaml", 1, `unknown command "drivers.yaml"; see csi-attach-hub --help`},
		{"schema drivers.yaml", 1, `unexpected argument "drivers.yaml"; see csi-attach-hub schema --help`},
		{"--confg=x", 1, "unknown flag: --confg; did you mean --config?"},
		{"-confg=x", 1, "unknown shorthand flag: 'c' in -confg=x; did you mean --config?"},
		{"--leader-elect", 1, "unknown flag: --leader-elect; did you mean --leader-election?"},
		{"--connection-timeout=1s", 1, "unknown flag: --connection-timeout"},
		{"status --wtach", 1, "unknown flag: --wtach; did you mean --watch?"},
		{"validate --ouput=json x", 1, "unknown flag: --ouput; did you mean --output?"},
		{"explain --ouput=json x", 3, "unknown flag: --ouput; did you mean --output?"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(strings.Fields(test.args), &stdout, &stderr)
		if code != test.code || stderr.String() != test.want+"\n" || stdout.Len() > 0 {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %d and %q", test.args, code, stdout.String(), stderr.String(), test.code, test.want)
		}
	}
}
