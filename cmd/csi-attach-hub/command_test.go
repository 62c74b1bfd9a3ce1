package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

const mistakes = `apiVersion: attach-hub/v1
kind: DriverConfig
defaults:
  timeout: 30
  worker: 5
drivers:
  - name: a.b
    endpoint: csi.sock
    workers: 0
  - name: a-b
    endpoint: unix:///csi/ab.sock
    timeout: -1s
  - name: a.b
    endpoint: unix:///csi/other.sock
  - name: _
    endpoint: unix:///csi/x.sock
`

func TestValidatePrintsEveryMistakeWithItsLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drivers.yaml")
	if err := os.WriteFile(file, []byte(mistakes), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := run([]string{"validate", file}, &stdout, &stderr); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	for i, want := range []string{":1: apiVersion", ":4: defaults.timeout", ":5: defaults.worker", ":8: drivers[0].endpoint",
		":9: drivers[0].workers", ":10: drivers[1].name", ":12: drivers[1].timeout", ":13: drivers[2].name", ":15: drivers[3].name"} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], file+want) {
			t.Errorf("line %d does not begin with %q:\n%s", i, want, stderr.String())
		}
	}
	if stdout.Len() > 0 {
		t.Errorf("stdout: %s", stdout.String())
	}
}

func TestValidateAcceptsTheExample(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run([]string{"validate", "../../drivers.yaml"}, &stdout, &stderr); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
}

func TestHubWithABadFileContactsNothing(t *testing.T) {
	dir := t.TempDir()
	config, kubeconfig := filepath.Join(dir, "drivers.yaml"), filepath.Join(dir, "no-kubeconfig")
	if err := os.WriteFile(config, []byte(mistakes), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := run([]string{"--config", config, "--kubeconfig", kubeconfig}, &stdout, &stderr); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	// Not even the kubeconfig was read: that file does not exist and is not named.
	if got := stderr.String(); strings.Count(got, "\n") != 9 || strings.Contains(got, kubeconfig) {
		t.Errorf("stderr:\n%s\nwant the nine mistakes and nothing else", got)
	}
}

func TestVersionNamesTheProgram(t *testing.T) {
	for _, arg := range []string{"version", "--version", "-version"} {
		var stdout, stderr bytes.Buffer
		if code := run([]string{arg}, &stdout, &stderr); code != 0 || stdout.String() != versionLine() || !strings.HasPrefix(versionLine(), "csi-attach-hub ") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", arg, code, stdout.String(), stderr.String())
		}
	}
}

func TestHubWithoutAFileSaysWhatToGive(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(nil, &stdout, &stderr); code != exitUsage || !strings.Contains(stderr.String(), "--csi-address") {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestExitCodesAreOneTable(t *testing.T) {
	document, err := os.ReadFile("../../deploy/OPERATE.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(exitHelp) {
		if code, meaning, found := strings.Cut(strings.TrimSpace(line), "  "); found && !strings.Contains(string(document), "| "+code+" | "+meaning+" |") {
			t.Errorf("OPERATE.md lacks %q", line)
		}
	}
	for _, args := range []string{"--help", "explain --help"} {
		if out, _, code := runHere(strings.Fields(args)...); code != 0 || !strings.Contains(out, exitHelp) {
			t.Errorf("%s, exit code %d, lacks the table:\n%s", args, code, out)
		}
	}
}

func TestHelpShowsTheCommandsFirstAndThenEachFlagInItsGroup(t *testing.T) {
	out, _, _ := runHere("--help")
	out = strings.ReplaceAll(out, "[=true|false]", "") // behind flags that need no value
	rest := out
	for _, want := range []string{"Commands:\n  status ", "  completion ", exitHelp, "Flags for drivers:\n      --config", "Flags for the Kubernetes API:\n      --kubeconfig",
		"Flags for leases:\n      --leader-election ", "Flags for HTTP:\n", "--profiling ", "Flags for logging:\n", "-v, --v ", "Flags of csi-attacher; ", "--timeout "} {
		var found bool
		if _, rest, found = strings.Cut(rest, want); !found {
			t.Errorf("%q is not there, or too early, in:\n%s", want, out)
		}
	}
	newHubCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(out, " --"+f.Name+" ") && f.Name != "version" && !strings.HasPrefix(f.Usage, "[Alpha]") {
			t.Errorf("--%s is missing", f.Name)
		}
	})
}

func TestEachCommandKeepsTheTableOfExitCodes(t *testing.T) {
	t.Setenv("KUBECONFIG", "/absent")
	const drivers = "../../drivers.yaml"
	for args, want := range map[string]int{
		"status": exitNoAnswer, "volumes": exitNoAnswer, "explain pod x": exitNoAnswer, "status --server http://127.0.0.1:1": exitNoAnswer,
		"status --server x": exitUsage, "volumes --server ftp://x": exitUsage, "explain pod/x/y/z": exitUsage, "explain": exitUsage,
		"validate": exitUsage, "validate /absent": exitUsage, "validate " + drivers: 0, "validate command_test.go": exitTrouble,
		"adopt /absent": exitUsage, "adopt " + drivers: exitTrouble, "schema": 0, "schema x": exitUsage, "version": 0, "version x": exitUsage,
		"--config /absent": exitUsage, "--config " + drivers + " --logging-format=xml": exitUsage, "--timeout=-1s": exitUsage,
	} {
		if out, problems, code := runHere(strings.Fields(args)...); code != want {
			t.Errorf("%s: exit code %d, want %d: %s%s", args, code, want, out, problems)
		}
	}
}

func TestMistypedWordsNeverStartTheHub(t *testing.T) {
	for args, want := range map[string]string{
		"statsu":                        `unknown command "statsu"`,
		"--config drivers.yaml valdate": `unknown command "valdate"`,
		"drivers.yaml":                  `unknown command "drivers.yaml"`,
		"schema drivers.yaml":           `unknown command "drivers.yaml"`,
		"-confg=x":                      "unknown shorthand flag: 'c' in -confg=x",
		"status --wtach":                "unknown flag: --wtach",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(strings.Fields(args), &stdout, &stderr); code != exitUsage || !strings.HasPrefix(stderr.String(), want) || stdout.Len() > 0 {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want 2 and %q", args, code, stdout.String(), stderr.String(), want)
		}
	}
}

// A hub with the kubeconfig of a person would take the leases.
func TestKubectlPluginNeverStartsTheHub(t *testing.T) {
	name := os.Args[0]
	defer func() { os.Args[0] = name }()
	os.Args[0] = "/usr/local/bin/kubectl-attach_hub"
	for _, args := range []string{"", "--config drivers.yaml"} {
		var stdout, stderr bytes.Buffer
		if code := run(strings.Fields(args), &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), "Commands:\n  status ") || strings.Contains(stdout.String(), "--shutdown-grace") {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, stdout.String(), stderr.String())
		}
	}
}
