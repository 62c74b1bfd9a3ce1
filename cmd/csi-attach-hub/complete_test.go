package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// completed returns the words that the program offers for the last argument, without descriptions, and cobra's directive.
func completed(t *testing.T, args ...string) (words []string, directive string) {
	t.Helper()
	stdout, stderr, code := runHere(append([]string{cobra.ShellCompNoDescRequestCmd}, args...)...)
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	if code != 0 || !strings.HasPrefix(lines[len(lines)-1], ":") {
		t.Fatalf("%q: exit code %d, stdout %q, stderr %q", args, code, stdout, stderr)
	}
	return lines[:len(lines)-1], lines[len(lines)-1]
}

func TestWordsAreCompletedByWhatTheCommandTakes(t *testing.T) {
	t.Setenv("KUBECONFIG", "/none")
	t.Chdir(t.TempDir())
	if err := os.Mkdir("ds", 0o755); err != nil {
		t.Fatal(err)
	}
	const noFiles, files, noSpace = ":4", ":0", ":6"
	for args, want := range map[string]struct{ words, directive string }{
		"stat|":                          {"status", noFiles},
		"status |":                       {"", noFiles},
		"status --output |":              {"table wide json", noFiles},
		"volumes -o |":                   {"table wide json name", noFiles},
		"explain -o |":                   {"table json", noFiles},
		"validate -o |":                  {"text json", noFiles},
		"validate -o json |":             {"", files},
		"validate a.yaml |":              {"", files},
		"set |":                          {"", files},
		"set configmap/ns/|":             {"", noFiles}, // there is no cluster
		"set drivers.yaml |":             {"", noFiles},
		"set drivers.yaml d retry.|":     {"retry.initial= retry.max=", noSpace},
		"volumes --color=|":              {"auto always never", noFiles},
		"volumes --health |":             {"broken attention standby fine", noFiles},
		"volumes --health broken,fine,|": {"broken,fine,attention broken,fine,standby", noFiles},
		"status --token-file |":          {"", files},
		"status --server |":              {"", noFiles},
		"--kubeconfig |":                 {"", files},
		"--http-tls-cert |":              {"", files},
		"--http-endpoint |":              {"", noFiles},
		"--logging-format |":             {"text json", noFiles},
		"--config x |":                   {"", noFiles},
		"--conf|":                        {"--config", noFiles},
		"proxy --client|":                {"--client-ca", noFiles},
		"completion |":                   {"bash zsh fish powershell", noFiles},
		"explain |":                      {"pod/ pvc/ pv/ driver/ node/", noSpace},
		"explain p|":                     {"pod/ pvc/ pv/", noSpace},
		"explain pod/a |":                {"", noFiles},
		"explain --all-stuck |":          {"", noFiles},
		"explain nonsense/|":             {"", noFiles},
		"explain driver/|":               {"", noFiles}, // there is no cluster
		"adopt |":                        {"", files},
		"adopt a.yaml manifests/|":       {"", files},
		"adopt ds/|":                     {"", files}, // a folder of this name is there
		"adopt deploy/|":                 {"", noFiles},
		"adopt --mode |":                 {"proxy drop-in sidecar-hub", noFiles},
		"adopt --step |":                 {"observe active", noFiles},
		"adopt --certificates |":         {"cert-manager existing", noFiles},
		"adopt -o |":                     {"text json kustomize= flux= helm-post-renderer helm-plugin=", noSpace},
		"adopt -o k|":                    {"kustomize=", noSpace},
		"adopt -o j|":                    {"json", noFiles},
		"adopt -o kustomize=|":           {"", noFiles},
	} {
		words, directive := completed(t, strings.Split(strings.TrimSuffix(args, "|"), " ")...)
		if got := strings.Join(words, " "); got != want.words || directive != want.directive {
			t.Errorf("%s is completed by %q %s, want %q %s", args, got, directive, want.words, want.directive)
		}
	}
	if stdout, _, _ := runHere(cobra.ShellCompRequestCmd, "--conf"); stdout != "--config\tfile with the drivers to serve\n:4\n" {
		t.Errorf("the description of a flag is %q", stdout)
	}
}

func TestEveryOutputFormatIsCompletedByFormatsThatAreTaken(t *testing.T) {
	stdout, _, _ := runHere(cobra.ShellCompNoDescRequestCmd, "")
	found := 0
	for _, command := range strings.Fields(stdout) {
		if flags, _ := completed(t, command, "--output"); !slices.Contains(flags, "--output") {
			continue
		}
		found++
		formats, directive := completed(t, command, "--output", "")
		if len(formats) < 2 || directive != ":4" && directive != ":6" {
			t.Errorf("%s --output is completed by %q %s; flagValues in complete.go must have its formats", command, formats, directive)
		}
		for _, format := range formats {
			if strings.HasSuffix(format, "=") {
				format += t.TempDir()
			}
			if _, stderr, _ := runHere(command, "--kubeconfig=/none", "--output", format); strings.Contains(stderr, "--output") {
				t.Errorf("%s does not take the format %s: %s", command, format, stderr)
			}
		}
	}
	if found < 4 {
		t.Errorf("only %d subcommands have --output", found)
	}
}

func TestNamesOfTheClusterAreCompleted(t *testing.T) {
	plane := testbed.Shared(t)
	w := testbed.WorldForTest(t, t.Context(), testbed.WorldOptions{Plane: plane})
	kubeconfig := plane.Kubeconfig()
	makeCSIDrivers(t, plane, testbed.CSIDriver{Name: "complete.example.com"})
	err := w.Cluster.Create(t.Context(), testbed.Node{Name: "complete-node"},
		testbed.PersistentVolume{Name: "complete-pv", Driver: "complete.example.com"},
		testbed.VolumeAttachment{Name: "complete-va", Driver: "complete.example.com", Node: "complete-node", PersistentVolume: "complete-pv"},
		testbed.PersistentVolumeClaim{Name: "complete-claim", PersistentVolume: "complete-pv"},
		testbed.Pod{Name: "complete-pod", Node: "complete-node"})
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"explain driver/comp|":                    "driver/complete.example.com",
		"explain csidriver/comp|":                 "csidriver/complete.example.com",
		"explain complete-|":                      "complete-va",
		"explain va/complete-|":                   "va/complete-va",
		"explain node/complete|":                  "node/complete-node",
		"explain pv/complete|":                    "pv/complete-pv",
		"explain pod/complete|":                   "pod/complete-pod",
		"explain pod/default/complete|":           "pod/default/complete-pod",
		"explain -n default pvc/complete|":        "pvc/complete-claim",
		"explain -n kube-system pvc/complete|":    "",
		"explain pvc/default/complete|":           "pvc/default/complete-claim",
		"volumes --driver complete|":              "complete.example.com",
		"volumes --node=complete|":                "complete-node",
		"volumes -n kube-sys|":                    "kube-system",
		"status --hub-namespace kube-sys|":        "kube-system",
		"explain --context none driver/complete|": "",
	} {
		command, rest, _ := strings.Cut(strings.TrimSuffix(args, "|"), " ")
		words, directive := completed(t, append([]string{command, "--kubeconfig", kubeconfig}, strings.Split(rest, " ")...)...)
		if got := strings.Join(words, " "); got != want || directive != ":4" {
			t.Errorf("%s is completed by %q %s, want %q", args, got, directive, want)
		}
	}
}

func TestWorkloadsOfTheClusterAreCompletedForAdopt(t *testing.T) {
	s := newLiveScene(t, "completed")
	for args, want := range map[string]string{
		"deploy/|": "deploy/controller", "a.yaml Deployment/contr|": "Deployment/controller", "deploy/other|": "", "sts/|": "", "deploy/controller/|": "",
	} {
		words, directive := completed(t, append([]string{"adopt", "--kubeconfig", s.plane.Kubeconfig(), "-n", s.namespace}, strings.Fields(strings.TrimSuffix(args, "|"))...)...)
		if got := strings.Join(words, " "); got != want || directive != ":4" {
			t.Errorf("%s is completed by %q %s, want %q", args, got, directive, want)
		}
	}
}

// kubeconfigFor writes a kubeconfig with two contexts for an API server. user is its user in JSON.
func kubeconfigFor(t *testing.T, server, user string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, file, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "one",
		"contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}, {"name": "other", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "users": [{"name": "u", "user": %s}]}`, server, user))
	return file
}

func TestContextsOfTheKubeconfigAreCompleted(t *testing.T) {
	file := kubeconfigFor(t, "http://127.0.0.1:1", "{}")
	if words, _ := completed(t, "status", "--kubeconfig", file, "--context", ""); !slices.Equal(words, []string{"one", "other"}) {
		t.Errorf("got %q", words)
	}
}

func TestAClusterThatDoesNotAnswerDoesNotBlockTheShell(t *testing.T) {
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hanging.Close()
	// A credential plugin that waits until the test ends. client-go asks it only for a server with TLS.
	fifo := filepath.Join(t.TempDir(), "credentials")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() {
		writer, err := os.OpenFile(fifo, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		writer.Close()
	}()
	asks := `{"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "cat", "args": ["` + fifo + `"], "interactiveMode": "Never"}}`
	for name, file := range map[string]string{
		"API server":        kubeconfigFor(t, hanging.URL, "{}"),
		"credential plugin": kubeconfigFor(t, "https://127.0.0.1:1", asks),
	} {
		if words, directive := completed(t, "explain", "--kubeconfig", file, "driver/"); len(words) > 0 || directive != ":4" {
			t.Errorf("%s: completed by %q %s", name, words, directive)
		}
	}
}

func TestNamesThatWouldActOnATerminalAreNotCompleted(t *testing.T) {
	hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"kind": "Table", "rows": [{"cells": ["a\u001b[2J"]}, {"cells": ["b\tdescription"]}, {"cells": []}, {"cells": [1]}, {"cells": ["c"]}]}`)
	}))
	defer hostile.Close()
	if words, _ := completed(t, "explain", "--kubeconfig", kubeconfigFor(t, hostile.URL, "{}"), "node/"); !slices.Equal(words, []string{"node/c"}) {
		t.Errorf("got %q", words)
	}
}

func TestEachShellTakesItsScriptOfCompletion(t *testing.T) {
	for _, shell := range shells {
		script, stderr, code := runHere("completion", shell)
		if code != 0 || stderr != "" || !strings.Contains(script, "csi-attach-hub") || !strings.Contains(script, cobra.ShellCompRequestCmd) {
			t.Fatalf("%s: exit code %d, stderr %q, script:\n%s", shell, code, stderr, script)
		}
		program, err := exec.LookPath(shell)
		if err != nil || shell == "powershell" {
			t.Logf("%s is not there to read its script", shell)
			continue
		}
		command := exec.CommandContext(t.Context(), program, "-n")
		command.Stdin = strings.NewReader(script)
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s does not take the script: %v\n%s", shell, err, output)
		}
	}
}

// The function of bash-completion that the script needs is replaced by one that knows the words already.
func TestBashCompletesACommandLine(t *testing.T) {
	program := installed(t, "csi-attach-hub")
	script, _, _ := runHere("completion", "bash")
	file := filepath.Join(t.TempDir(), "script")
	write(t, file, script)
	typed := exec.CommandContext(t.Context(), "bash", "-c", `. "$1"
_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
COMP_WORDS=(csi-attach-hub volumes -o w); COMP_CWORD=3; COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}
__start_csi-attach-hub
printf '%s\n' "${COMPREPLY[@]}"`, "bash", file)
	typed.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
	output, err := typed.Output() // stderr: compopt outside of a completion
	if err != nil || strings.TrimSpace(string(output)) != "wide" {
		t.Errorf("completed by %q, %v, want wide", output, err)
	}
}

func TestMistypedShellPrintsNoScript(t *testing.T) {
	for _, args := range []string{"completion", "completion bahs", "completion bash zsh"} {
		stdout, stderr, code := runHere(strings.Fields(args)...)
		if code != 1 || stdout != "" || stderr != "give one shell: bash, zsh, fish or powershell; see csi-attach-hub completion --help\n" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}
