package testbed

import (
	"net/http"
	"path/filepath"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestRequestsOfAServiceAccountHaveAPriorityUnlessTheControlPlaneIsUnlimited(t *testing.T) {
	ctx := needsControlPlane(t)
	for name, plane := range map[string]*ControlPlane{"default": Shared(t), "unlimited": OwnControlPlane(t, ControlPlaneOptions{Unlimited: true})} {
		t.Run(name, func(t *testing.T) {
			if err := plane.ApplyInstallation(ctx, "ServiceAccount"); err != nil {
				t.Fatal(err)
			}
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
			if err := plane.WriteAccountKubeconfig(ctx, kubeconfig, "csi-attach-hub", "csi-attach-hub"); err != nil {
				t.Fatal(err)
			}
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/api/v1/nodes", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusForbidden {
				t.Errorf("a ServiceAccount without rights got: %s", answer.Status)
			}
			level := answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)
			if has, want := level != "", name == "default"; has != want {
				t.Errorf("the answer names priority level %q", level)
			}
			if got, err := plane.PriorityLevel(ctx, "workload-low"); err != nil || got.Waiting != 0 || got.Rejected != 0 {
				t.Errorf("workload-low: %+v, %v", got, err)
			}
		})
	}
}
