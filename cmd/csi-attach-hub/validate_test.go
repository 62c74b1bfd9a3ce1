package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const doubtful = `apiVersion: attach-hub/v1alpha1
kind: DriverConfig
drivers:
  - {name: a, endpoint: "unix:///a", timeout: 5s}
`

func TestValidateChecksEachFileAndStdin(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bad, good := write("bad.yaml", "kind: x\n"), write("good.yaml", doubtful)
	for _, test := range []struct {
		name, stdin string
		args        []string
		fails       string // "" if it does not
		stdout      string
		stderr      string
	}{
		{"a warning is no error", "", []string{good}, "", good + ": ok, 1 drivers\n", good + ":4: warning: drivers[0].timeout: "},
		{"stdin", doubtful, []string{"-"}, "", "-: ok, 1 drivers\n", "stdin:4: warning: drivers[0].timeout: "},
		{"bad stdin", "drivers: 1\n", []string{"-"}, "stdin:1: drivers: must be a list", "", ""},
		{"one bad of three", doubtful, []string{bad, good, "-"}, bad + ":1: kind: must be", good + ": ok, 1 drivers\n-: ok, 1 drivers\n", ":4: warning: "},
		{"all are told of", "", []string{bad, filepath.Join(dir, "none")}, filepath.Join(dir, "none") + ": file does not exist", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			c := newValidateCommand()
			c.SetArgs(test.args)
			c.SetIn(strings.NewReader(test.stdin))
			c.SetOut(&stdout)
			c.SetErr(&stderr)
			err := c.Execute()
			if (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("got %v, want %q", err, test.fails)
			}
			if stdout.String() != test.stdout || !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("stdout %q, stderr %q, want %q, %q", stdout.String(), stderr.String(), test.stdout, test.stderr)
			}
		})
	}
}
