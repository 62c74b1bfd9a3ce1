package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const settable = `apiVersion: attach-hub/v1alpha1
kind: DriverConfig
drivers:
  # ask Eve
  - name: a.example.com
    endpoint: unix:///csi/a.sock
    mode: paused # until Monday
`

func TestSetChangesALineOfAFileAndPrintsIt(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "real.yaml"), filepath.Join(dir, "drivers.yaml")
	write(t, file, settable)
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real.yaml", link); err != nil {
		t.Fatal(err)
	}
	const lines = "@@ -7,1 +7,1 @@\n-    mode: paused # until Monday\n+    mode: active # until Monday\n"
	for _, tt := range []struct{ args, stdout, content string }{
		{"--dry-run", link + ": would change\n" + lines, settable},
		{"", link + ": changed\n" + lines, strings.Replace(settable, "paused", "active", 1)},
		{"", link + ": nothing to change\n", strings.Replace(settable, "paused", "active", 1)},
	} {
		stdout, stderr, code := runHere(append([]string{"set", link, "a.example.com", "mode=active"}, strings.Fields(tt.args)...)...)
		if code != 0 || stderr != "" || stdout != tt.stdout {
			t.Errorf("exit code %d, stderr %q, stdout %q, want %q", code, stderr, stdout, tt.stdout)
		}
		content, err := os.ReadFile(file)
		if err != nil || string(content) != tt.content {
			t.Errorf("the file is %q, %v; want %q", content, err, tt.content)
		}
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the rights of the file are %v, %v", info, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

func TestSetWritesNothingThatValidateRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drivers.yaml")
	write(t, file, settable)
	for args, want := range map[string]string{
		"a.example.com mode=activ workers=0": "drivers.yaml:8: drivers[0].workers", // after the line that it adds
		"b.example.com mode=active":          "drivers[1].endpoint: missing",
		"a.example.com mode":                 "KEY=VALUE",
	} {
		stdout, stderr, code := runHere(append([]string{"set", file}, strings.Fields(args)...)...)
		content, err := os.ReadFile(file)
		if code != 1 || stdout != "" || !strings.Contains(stderr, want) || err != nil || string(content) != settable {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %q; the file is %q, %v", args, code, stdout, stderr, want, content, err)
		}
	}
}

func TestSetMendsOneEntryAndNamesTheMistakesOfOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drivers.yaml")
	write(t, file, strings.Replace(settable, "mode: paused", "mode: pausd", 1)+"  - name: b.example.com\n    endpoint: b.sock\n")
	stdout, stderr, code := runHere("set", file, "a.example.com", "mode=active")
	if code != 0 || !strings.Contains(stdout, "+    mode: active") || !strings.Contains(stderr, "Warning") || !strings.Contains(stderr, "drivers[1].endpoint") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestSetChangesAConfigMapOfTheCluster(t *testing.T) {
	plane := testbed.Shared(t)
	maps := plane.Clientset().CoreV1().ConfigMaps("default")
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "set-drivers", Labels: map[string]string{"stays": "yes"}}, Data: map[string]string{"drivers.yaml": settable, "other": "stays"}}
	if _, err := maps.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(plane.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts["asked"], config.Contexts["production"] = config.Contexts[config.CurrentContext], &clientcmdapi.Context{Cluster: "production"}
	config.Clusters["production"], config.CurrentContext = &clientcmdapi.Cluster{Server: "http://127.0.0.1:1"}, "production"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"configmap/default/set-drivers": 0, "configmap/default/none": 1, "configmap/set-drivers": 1} {
		if stdout, stderr, code := runHere("set", "--context=asked", "--kubeconfig="+kubeconfig, name, "a.example.com", "mode=active"); code != want {
			t.Errorf("%s: exit code %d, want %d: %s%s", name, code, want, stdout, stderr)
		}
	}
	got, err := maps.Get(t.Context(), "set-drivers", metav1.GetOptions{})
	if err != nil || got.Data["drivers.yaml"] != strings.Replace(settable, "paused", "active", 1) || got.Data["other"] != "stays" || got.Labels["stays"] != "yes" {
		t.Errorf("got %+v, %v", got, err)
	}
}
