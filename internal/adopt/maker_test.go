package adopt_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

// textOf returns what adopt prints of a manifest, up to the part that is the same for all.
func textOf(t *testing.T, manifest string, o adopt.Options) string {
	t.Helper()
	text := string(adopt.Text([]adopt.Plan{onlyPlan(t, manifest, o)}, adopt.Arguments{Inputs: []string{"a.yaml"}}))
	text, _, found := strings.Cut(text, "\nIf Helm, Argo CD or Flux makes the manifest\n")
	if !found {
		t.Fatalf("no steps:\n%s", text)
	}
	return strings.Join(strings.Fields(text), " ")
}

// kubectl apply of a workload that Helm has made can leave csi-attacher there, and a sync undoes it.
func TestStepsChangeTheWorkloadWhereItIsMade(t *testing.T) {
	const release = "helm upgrade RELEASE CHART --version VERSION -n storage"
	for name, test := range map[string]struct {
		change []string
		want   []string
	}{
		"Helm": {labelled("app.kubernetes.io/managed-by: Helm"), []string{"--step=observe kubectl -n storage rollout", "--step=active kubectl -n storage rollout", "--step=observe kubectl -n storage rollout status",
			release + " # without the post-renderer", `Helm 3 are in "If Helm, Argo CD or Flux makes the manifest"`}},
		"Argo CD": {annotated("argocd.argoproj.io/tracking-id: a"), []string{"let the Application point to attach-hub-block-example-com/observe", "attach-hub-block-example-com/active", "argocd app sync APPLICATION kubectl -n storage rollout"}},
		"Flux from a HelmRelease": {labelled("helm.toolkit.fluxcd.io/name: r, helm.toolkit.fluxcd.io/namespace: $(reboot)"),
			[]string{"as in observe.yaml of -o flux=DIR", "as in active.yaml", "flux reconcile helmrelease r -n '$(reboot)' --with-source"}},
		"Flux from a Kustomization": {labelled("kustomize.toolkit.fluxcd.io/name: r"), []string{"point to attach-hub-block-example-com/active", "flux reconcile kustomization r -n NAMESPACE"}},
	} {
		for _, mode := range []adopt.Mode{adopt.ModeProxy, adopt.ModeDropIn, adopt.ModeSidecarHub} {
			text := textOf(t, changed(t, test.change...), adopt.Options{Mode: mode})
			if strings.Contains(text, "kubectl apply -k attach-hub-") {
				t.Errorf("%s, %s: kubectl applies the workload:\n%s", name, mode, text)
			}
			if mode != adopt.ModeProxy {
				continue
			}
			for _, want := range append(slices.Clone(test.want), "until pods=$(kubectl -n storage get pods -l app=controller") {
				if !strings.Contains(text, want) {
					t.Errorf("%s: has no %q:\n%s", name, want, text)
				}
			}
		}
	}
}

func TestStepsWithCertificatesOfTheUserNameNoOtherSecret(t *testing.T) {
	text := textOf(t, manifest, adopt.Options{Certificates: adopt.CertExisting})
	if strings.Contains(text, "attach-hub-block-example-com-ca") {
		t.Errorf("names the Secret of an authority that is not made:\n%s", text)
	}
	secret, observe := strings.Index(text, "create secret tls attach-hub-block-example-com-tls"), strings.Index(text, "Observe: put the proxy")
	if secret < 0 || observe < secret || !strings.Contains(text, "signed your certificate: write it to the file block.example.com.crt") {
		t.Errorf("does not say which Secret and which file the user makes:\n%s", text)
	}
}

func TestStepsWithoutLeaderElectionPauseTheHubFirstOnTheWayBack(t *testing.T) {
	text := textOf(t, changed(t, "--leader-election,", ""), adopt.Options{WithoutLeaderElection: true})
	last := -1
	for _, want := range []string{"kubectl apply -k attach-hub-block-example-com/active", "until pods=$(kubectl -n storage get pods -l app=controller", `set "mode: active"`,
		"kubectl -n csi-attach-hub get lease", `set "mode: paused"`, "Go on when status shows Paused", "kubectl apply -k attach-hub-block-example-com/observe", `Set "mode: observe"`, "To remove everything, after the way back"} {
		at := strings.LastIndex(text, want)
		if at <= last {
			t.Errorf("%q is missing, or too early:\n%s", want, text)
		}
		last = at
	}
}

func TestDurationsAreWrittenAsUsersWriteThem(t *testing.T) {
	for d, want := range map[time.Duration]string{2 * time.Minute: "2m", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", time.Hour: "1h", time.Hour + time.Second: "1h0m1s", 0: "0s"} {
		if got := adopt.Duration(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
