package main

import (
	"bytes"
	"encoding/json"
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

// configMap is the manifest of a ConfigMap with a drivers.yaml that begins on line 5.
func configMap(file string) string {
	return "kind: ConfigMap\nmetadata: {name: drivers}\ndata:\n  drivers.yaml: |\n    " + strings.ReplaceAll(file, "\n", "\n    ")
}

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
		{"a warning is no error", "", []string{good}, "", good + ": ok, 1 driver\n", good + ":4: warning: drivers[0].timeout: "},
		{"stdin", doubtful, []string{"-"}, "", "stdin: ok, 1 driver\n", "stdin:4: warning: drivers[0].timeout: "},
		{"bad stdin", "drivers: 1\n", []string{"-"}, "stdin:1: drivers: must be a list", "", ""},
		{"ConfigMap", configMap(doubtful), []string{"-"}, "", "stdin: ok, 1 driver\n", "stdin:8: warning: drivers[0].timeout: "},
		{"mistake in a ConfigMap", configMap(strings.ReplaceAll(doubtful, "5s", "5")), []string{"-"}, "stdin:8: drivers[0].timeout: ", "", ""},
		{"one bad of three", doubtful, []string{bad, good, "-"}, bad + ":1: kind: must be", good + ": ok, 1 driver\nstdin: ok, 1 driver\n", ":4: warning: "},
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

func TestValidateChecksAFolderAsOneConfiguration(t *testing.T) {
	const head = "apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\n"
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), head+"defaults: {workers: 5}\ndrivers: [{name: a, endpoint: \"unix:///a\"}]\n")
	write(t, filepath.Join(dir, "b.yaml"), head+"drivers: [{name: b, endpoint: \"unix:///b\"}]\n")
	if stdout, stderr, code := runHere("validate", dir); code != 0 || stderr != "" || stdout != dir+": ok, 2 drivers\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	write(t, filepath.Join(dir, "c.yaml"), head+"defaults: {}\ndrivers: []\n")
	write(t, filepath.Join(dir, "d.yml"), head+"drivers: []\n")
	if _, stderr, code := runHere("validate", dir); code != 1 || !strings.Contains(stderr, "a.yaml:3: defaults: are in "+dir+"/c.yaml:3 too") || !strings.Contains(stderr, "c.yaml:3: defaults: are in") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	write(t, filepath.Join(dir, "c.yaml"), head+"drivers: [{name: a, endpoint: \"unix:///c\"}, {name: c}]\n")
	if _, stderr, code := runHere("validate", dir); code != 1 || !strings.Contains(stderr, "c.yaml:3: drivers[1].endpoint: missing") || !strings.Contains(stderr, "d.yml: is not read") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestSchemaPrintsJSON(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run([]string{"schema"}, &stdout, &stderr); code != 0 || !json.Valid(stdout.Bytes()) {
		t.Errorf("exit code %d, stderr %q, stdout %q", code, stderr.String(), stdout.String())
	}
}
