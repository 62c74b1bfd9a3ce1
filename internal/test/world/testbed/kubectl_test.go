package testbed

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The commands that the product prints are for kubectl, and a machine with only Go has none.
func TestKubectlOfTheControlPlaneReadsAndWrites(t *testing.T) {
	plane, dir := Shared(t), t.TempDir()
	env, err := plane.LinkKubectl(dir)
	if err != nil {
		t.Fatal(err)
	}
	run := func(script string) string {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if at := run("command -v kubectl"); at != dir+"/kubectl" {
		t.Fatalf("the shell runs %s", at)
	}
	run("kubectl create namespace kubectl-of-tests && kubectl -n kubectl-of-tests create configmap one --from-literal=a=b")
	if got := run("kubectl -n kubectl-of-tests get configmap one -o jsonpath='{.data.a}'"); got != "b" {
		t.Errorf("kubectl read %q, want b", got)
	}
}
