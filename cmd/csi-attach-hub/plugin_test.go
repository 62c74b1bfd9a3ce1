package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// installed returns the path of a link with a name to the program, in a folder of its own.
func installed(t *testing.T, name string) string {
	t.Helper()
	binary, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub", Race: true})
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(binary, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// runProgram runs a program to its end.
func runProgram(t *testing.T, env []string, program string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, problems bytes.Buffer
	command := exec.CommandContext(t.Context(), program, args...)
	command.Env = append(os.Environ(), env...)
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		if _, ended := errors.AsType[*exec.ExitError](err); !ended {
			t.Fatal(err)
		}
	}
	return out.String(), problems.String(), command.ProcessState.ExitCode()
}

func TestKubectlPluginSaysInEveryTextHowItIsCalled(t *testing.T) {
	plugin := installed(t, "kubectl-attach_hub")
	server := fakeHub(t, status.Broken, someVolumes()...)
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"":                                  {0, "\n  kubectl attach-hub [command]\n"},
		"--help":                            {0, "\n  kubectl attach-hub [command]\n"},
		"help volumes":                      {0, "\n  kubectl attach-hub volumes --state stuck,failing\n"},
		"status --help":                     {0, "\n  kubectl attach-hub status [flags]\n"},
		"explain --help":                    {0, "\n  kubectl attach-hub explain VOLUMEATTACHMENT|"},
		"validate --help":                   {0, "drivers -o yaml | kubectl attach-hub validate -\n"},
		"adopt --help":                      {0, "\n  kubectl attach-hub adopt controller.yaml -o json"},
		"preflight --help":                  {0, "exec deploy/csi-attach-hub -- /csi-attach-hub preflight\n"},
		"version":                           {0, "csi-attach-hub "},
		"--version":                         {0, "csi-attach-hub "},
		"completion --help":                 {0, "ln -s kubectl-attach_hub "},
		"completion bash":                   {1, "kubectl completes \"kubectl attach-hub\" without a script; see kubectl attach-hub completion --help\n"},
		"statsu":                            {1, "unknown command \"statsu\"; did you mean \"status\"?\n"},
		"frobnicate":                        {1, "unknown command \"frobnicate\"; see kubectl attach-hub --help\n"},
		"explain":                           {3, "see kubectl attach-hub explain --help\n"},
		"status --wtach":                    {1, "unknown flag: --wtach; did you mean --watch?\n"},
		"status --server " + server:         {0, "\nkubectl attach-hub explain pod/NAMESPACE/NAME or driver/NAME says what to do.\n"},
		"status -o json --server " + server: {0, `"drivers"`},
	} {
		stdout, stderr, code := runProgram(t, nil, plugin, strings.Fields(args)...)
		if code != want.code || !strings.Contains(stdout+stderr, want.text) || (stderr != "") != (code != 0) {
			t.Errorf("%q: exit code %d, want %d and %q\nstdout: %s\nstderr: %s", args, code, want.code, want.text, stdout, stderr)
		}
		other := regexp.MustCompile(`(^|[^/])csi-attach-hub (status|volumes|explain|adopt|preflight|validate|set|schema|version)\b`)
		if found := other.FindString(stdout + stderr); found != "" {
			t.Errorf("%q names %q, which is not how it was called:\n%s%s", args, found, stdout, stderr)
		}
	}
}

// Helm, Argo CD and a Pod have no kubectl: they find the program under its own name.
func TestAdoptAsPluginNamesTheProgramAsWhoeverRunsItFindsIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "controller.yaml")
	write(t, file, adoptable)
	stdout, stderr, code := runProgram(t, nil, installed(t, "kubectl-attach_hub"), "adopt", file)
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	for _, want := range []string{
		"kubectl attach-hub adopt " + file + " -o kustomize=", "kubectl attach-hub validate ", "kubectl attach-hub status\n", "| kubectl attach-hub adopt - ",
		"exec deploy/csi-attach-hub -- /csi-attach-hub preflight ", "--post-renderer csi-attach-hub ", "      csi-attach-hub adopt --",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("has no %q:\n%s", want, stdout)
		}
	}
	if n := len(regexp.MustCompile(`(?m)(^|[^/])csi-attach-hub (status|adopt|preflight|validate)\b`).FindAllString(stdout, -1)); n != 1 {
		t.Errorf("%d command lines have its own name, want only that of Argo CD:\n%s", n, stdout)
	}
	refused := strings.NewReplacer("--drivername=block.csi.example.com", "", "kind: CSIDriver", "kind: Other").Replace(adoptable)
	write(t, file, refused)
	if stdout, _, code := runProgram(t, nil, installed(t, "kubectl-attach_hub"), "adopt", file); code != exitRefused || !strings.Contains(stdout, "/csi-attach-hub preflight --socket") {
		t.Errorf("exit code %d: %s", code, stdout)
	}
}

// A hub that starts with the kubeconfig of a user would take the leases of the real one.
func TestKubectlPluginNeverStartsAHub(t *testing.T) {
	var asked atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer api.Close()
	dir := t.TempDir()
	config, kubeconfig := filepath.Join(dir, "drivers.yaml"), filepath.Join(dir, "kubeconfig")
	write(t, config, testbed.ConfigHead+"drivers: []\n")
	write(t, kubeconfig, `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
		"clusters": [{"name": "c", "cluster": {"server": "`+api.URL+`"}}]}`)
	for _, name := range []string{"kubectl-attach_hub", "kubectl-attach-hub", "kubectl-attach_hub.exe"} {
		plugin := installed(t, name)
		for _, args := range [][]string{{"--config", config, "--kubeconfig", kubeconfig}, {"-config=" + config}, {"--config=" + config, "statsu"}} {
			stdout, stderr, code := runProgram(t, []string{"KUBECONFIG=" + kubeconfig}, plugin, args...)
			if code != 1 || stdout != "" || stderr != "--config: kubectl attach-hub does not run the hub, and takes flags only after a subcommand; see kubectl attach-hub --help\n" &&
				!(name == "kubectl-attach-hub" && strings.HasPrefix(stderr, "--config: kubectl attach hub does not run the hub")) {
				t.Errorf("%s %q: exit code %d, stdout %q, stderr %q", name, args, code, stdout, stderr)
			}
		}
	}
	newHubCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "version" {
			return
		}
		c := newPluginCommand("attach_hub")
		c.SetArgs([]string{"--" + f.Name + "=1"})
		if err := c.Execute(); err == nil || !strings.HasPrefix(err.Error(), "--"+f.Name+": kubectl attach-hub does not run the hub") {
			t.Errorf("--%s: %v", f.Name, err)
		}
	})
	if n := asked.Load(); n > 0 {
		t.Errorf("the plugin sent %d requests to the Kubernetes API", n)
	}
}

func TestWithItsOwnNameTheProgramRunsTheHub(t *testing.T) {
	for _, name := range []string{"csi-attach-hub", "hub", "attach_hub"} {
		_, stderr, code := runProgram(t, nil, installed(t, name), "--config", filepath.Join(t.TempDir(), "none.yaml"))
		if code != 1 || !strings.Contains(stderr, "none.yaml: file does not exist") {
			t.Errorf("%s: exit code %d, stderr %q", name, code, stderr)
		}
	}
}

// kubectl runs this program with the words behind "kubectl attach-hub"; the last one may be empty.
func TestKubectlGetsCompletionsFromTheLinkThatItLooksFor(t *testing.T) {
	complete := installed(t, "kubectl_complete-attach_hub")
	for args, want := range map[string]string{
		"status -o |":        "table\nwide\njson\n:4\n",
		"status --fail-on=|": "broken\nattention\n:4\n",
		"validate |":         ":0\n",
		"explain driv|":      "driver/\tCSI driver\n:6\n",
		"--conf|":            ":4\n",
	} {
		words := strings.Split(strings.TrimSuffix(args, "|"), " ")
		stdout, _, code := runProgram(t, []string{"KUBECONFIG=/none"}, complete, words...)
		if code != 0 || stdout != want {
			t.Errorf("%s exit code %d, stdout %q, want %q", args, code, stdout, want)
		}
	}
	if stdout, _, _ := runProgram(t, nil, complete, ""); !strings.Contains(stdout, "\nstatus\t") || !strings.HasSuffix(stdout, "\n:4\n") {
		t.Errorf("the subcommands are completed by %q", stdout)
	}
}
