package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

// A hub that runs as another user must still be able to read the file.
func TestSetLeavesAFileToItsOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a file away")
	}
	const owner = 65534
	file := filepath.Join(t.TempDir(), "drivers.yaml")
	write(t, file, settable)
	if err := errors.Join(os.Chown(file, owner, owner), os.Chmod(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := runHere("set", file, "a.example.com", "mode=active"); code != 0 {
		t.Fatal(code, stderr)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); s.Uid != owner || s.Gid != owner || info.Mode().Perm() != 0o600 {
		t.Errorf("the file belongs to %d:%d and has the mode %v", s.Uid, s.Gid, info.Mode())
	}
}

func TestSetOverwritesNoChangeOfSomebodyElse(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "drivers.yaml")
	write(t, file, settable)
	_, _, err := filePlace(file).change(func([]byte) ([]byte, error) {
		write(t, file, "theirs")
		return []byte("mine"), nil
	}, false)
	content, readErr := os.ReadFile(file)
	if err == nil || !strings.Contains(err.Error(), "somebody else has changed it") || string(content) != "theirs" || readErr != nil {
		t.Errorf("got %v, and the file is %q, %v", err, content, readErr)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
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
