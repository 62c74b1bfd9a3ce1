package deploy_test

import (
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// Its files are not here, and that is all that it has to complain of.
func TestProxyTakesTheArgumentsOfItsContainer(t *testing.T) {
	binary, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub", Race: true})
	if err != nil {
		t.Fatal(err)
	}
	pod := as[appsv1.Deployment](t, find(t, build(t, "overlays/driver"), "Deployment", "driver-controller")).Spec.Template.Spec
	for _, c := range pod.Containers {
		if c.Name != "attach-hub-proxy" {
			continue
		}
		out, err := exec.CommandContext(t.Context(), binary, c.Args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "there is no file /hub-ca/ca.crt") {
			t.Errorf("it ended with %v and said %s", err, out)
		}
		return
	}
	t.Error("there is no proxy")
}
