package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// podsIn serves the Pods of the API: some namespaces have a Pod of a hub.
func podsIn(t *testing.T, namespaces ...string) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		items := "[]"
		namespace, isPods := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/pods")
		if isPods && slices.Contains(namespaces, namespace) {
			items = `[{"metadata": {"name": "hub-0", "namespace": "` + namespace + `"}}]`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind": "PodList", "apiVersion": "v1", "items": ` + items + `}`))
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

func TestHubIsLookedForInItsNamespaceAlone(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	const own = "csi-attach-hub"
	for name, tt := range map[string]struct {
		args string
		hubs []string
		want string // namespace of the hub; empty: an error
	}{
		"nothing given":                 {"", []string{own}, own},
		"--hub-namespace":               {"--hub-namespace storage -n db", []string{own, "storage", "db"}, "storage"},
		"--hub-namespace without a hub": {"--hub-namespace storage -n db", []string{own, "db"}, ""},
		"-n of the Pod":                 {"-n db", []string{own, "db"}, own},
		"-n of the Pod, and no hub":     {"-n db", []string{"db"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var f clientFlags
			set := pflag.NewFlagSet("", pflag.ContinueOnError)
			f.add(set)
			if err := set.Parse(strings.Fields(tt.args)); err != nil {
				t.Fatal(err)
			}
			hub, err := f.hub(t.Context(), podsIn(t, tt.hubs...))
			if err != nil {
				if tt.want != "" || !strings.Contains(err.Error(), "--hub-namespace") {
					t.Errorf("no hub was found: %v", err)
				}
				return
			}
			defer hub.Close()
			if got := hub.View(t.Context()).Replicas[0].Replica; got != "Pod "+tt.want+"/hub-0" {
				t.Errorf("found %s, want that of namespace %s", got, tt.want)
			}
		})
	}
}

func TestWithoutANamespaceTheCurrentOneOfTheKubeconfigIsMeant(t *testing.T) {
	current := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, current, `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "namespace": "team"}}]}`)
	none := filepath.Join(t.TempDir(), "kubeconfig")
	text, err := os.ReadFile(current)
	if err != nil {
		t.Fatal(err)
	}
	write(t, none, strings.Replace(string(text), `, "namespace": "team"`, "", 1))
	for want, f := range map[string]clientFlags{
		"team":    {kubeconfig: current},
		"db":      {kubeconfig: current, namespace: "db"},
		"default": {kubeconfig: none},
	} {
		if got, err := f.askedNamespace(); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

func TestFlagsThatServerMakesUselessAreWarnedOf(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	server := fakeHub(t, status.Fine)
	const hubNamespace = "Warning: --hub-namespace has no effect with --server\n"
	for args, want := range map[string]string{
		"status -o json":                          "",
		"status -o json --hub-namespace storage":  hubNamespace,
		"volumes -o json -n storage":              "",
		"volumes -o json --hub-namespace storage": hubNamespace,
	} {
		_, stderr, code := runHere(append(strings.Fields(args), "--server", server)...)
		if code != 0 || stderr != want {
			t.Errorf("%s: exit code %d, stderr %q, want %q", args, code, stderr, want)
		}
	}
}

func TestContextNamesTheClusterAndTheNamespaceThatAreAsked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, file, `{"apiVersion": "v1", "kind": "Config", "current-context": "one",
		"contexts": [{"name": "one", "context": {"cluster": "one", "namespace": "first"}}, {"name": "other", "context": {"cluster": "other", "namespace": "second"}}],
		"clusters": [{"name": "one", "cluster": {"server": "http://127.0.0.1:1"}}, {"name": "other", "cluster": {"server": "http://127.0.0.1:2"}}]}`)
	for given, want := range map[string]string{"": "http://127.0.0.1:1 first", "other": "http://127.0.0.1:2 second"} {
		f := clientFlags{kubeconfig: file, kubeContext: given}
		config, err := f.kube()
		if err != nil {
			t.Fatal(err)
		}
		namespace, err := f.askedNamespace()
		if got := config.Host + " " + namespace; err != nil || got != want {
			t.Errorf("--context %q: asked %s, %v, want %s", given, got, err, want)
		}
	}
	t.Setenv("KUBECONFIG", file)
	if _, stderr, code := runHere("volumes", "--context", "none"); code != exitNoAnswer || !strings.Contains(stderr, `context "none" does not exist`) {
		t.Errorf("a context that does not exist: exit code %d, stderr %q", code, stderr)
	}
}

// All commands that ask the cluster look for it where kubectl does, and take the context of --context.
func TestEveryCommandThatAsksTheClusterLooksWhereKubectlDoes(t *testing.T) {
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer other.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, file, `{"apiVersion": "v1", "kind": "Config", "current-context": "one",
		"contexts": [{"name": "one", "context": {"cluster": "one"}}, {"name": "other", "context": {"cluster": "other"}}],
		"clusters": [{"name": "one", "cluster": {"server": "http://127.0.0.1:1"}}, {"name": "other", "cluster": {"server": "`+other.URL+`"}}]}`)
	t.Setenv("KUBECONFIG", file)
	for _, args := range []string{"status", "volumes", "explain node/n"} {
		asked.Store(0)
		stdout, stderr, code := runHere(append(strings.Fields(args), "--context", "other")...)
		if code == 0 || asked.Load() == 0 {
			t.Errorf("%s: exit code %d, and the cluster of the context got %d requests: %s%s", args, code, asked.Load(), stdout, stderr)
		}
	}
}
