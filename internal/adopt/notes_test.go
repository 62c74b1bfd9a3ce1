package adopt_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

const scrapers = `---
apiVersion: v1
kind: Service
metadata: {name: metrics, namespace: storage, labels: {app: metrics}}
spec: {selector: {app: controller}, ports: [{name: attacher, port: 80, targetPort: http}, {name: other, port: 81, targetPort: 1}]}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: monitor, namespace: storage}
spec: {selector: {matchLabels: {app: metrics}}, endpoints: [{port: attacher}, {port: other}]}
`

func TestNotesSayWhatTheUserMustKnow(t *testing.T) {
	onHost := []string{"    spec:\n      containers", "    spec:\n      hostNetwork: true\n      containers"}
	with := func(pod string) []string {
		return []string{"    spec:\n      containers", "    spec:\n      " + pod + "\n      containers"}
	}
	of := func(container string) []string {
		return []string{"          image: registry.k8s.io", "          " + container + "\n          image: registry.k8s.io"}
	}
	for name, test := range map[string]struct {
		change []string
		more   string
		mode   adopt.Mode
		want   []string // parts of notes; the first is in no note of the unchanged manifest
	}{
		"Helm":                  {change: labelled("app.kubernetes.io/managed-by: Helm"), want: []string{"-o helm-post-renderer"}},
		"Helm by annotation":    {change: annotated("meta.helm.sh/release-name: r"), want: []string{"Helm makes this object"}},
		"Argo CD":               {change: annotated("argocd.argoproj.io/tracking-id: a"), want: []string{"Argo CD"}},
		"Flux":                  {change: labelled("kustomize.toolkit.fluxcd.io/name: a"), want: []string{"Flux makes this object from a Kustomization"}},
		"Flux before Helm":      {change: labelled("app.kubernetes.io/managed-by: Helm, helm.toolkit.fluxcd.io/name: a"), want: []string{"spec.postRenderers"}},
		"replicas":              {change: []string{"replicas: 1", "replicas: 3"}, want: []string{"3 replicas: the Service keeps the hub to one"}},
		"DaemonSet":             {change: []string{"kind: Deployment", "kind: DaemonSet"}, want: []string{"a replica on each of its nodes"}},
		"host network":          {change: onHost, want: []string{"must be free on each node", "maxSurge: 0"}},
		"without election":      {change: []string{"--leader-election,", ""}, want: []string{"no Lease keeps csi-attacher apart"}},
		"drop-in, no election":  {change: []string{"--leader-election,", ""}, mode: adopt.ModeDropIn, want: []string{"both work, as in each update before"}},
		"defaults":              {change: []string{", --timeout=1m", ""}, want: []string{"--timeout (csi-attacher 15s, hub 2m)"}},
		"metrics":               {change: slices.Concat(attacherArg("--http-endpoint=:8080"), of("ports: [{name: http, containerPort: 8080}]")), more: scrapers, want: []string{"the metrics of csi-attacher on :8080", "port 80 of Service metrics, endpoint attacher of ServiceMonitor monitor"}},
		"pull secrets":          {change: with("imagePullSecrets: [{name: pull}]"), want: []string{"imagePullSecrets pull: they must allow to pull example.com/hub:v1"}},
		"user of another image": {change: []string{"registry.k8s.io/sig-storage/", "example.com/"}, want: []string{"root is taken"}},
		"OpenShift":             {change: []string{"namespace: storage", "namespace: openshift-storage"}, want: []string{"add --openshift"}},
		"privileged":            {change: of("securityContext: {privileged: true}"), want: []string{"SELinux"}},
		"template of a Secret": {more: "---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: c}, provisioner: block.example.com, parameters: {csi.storage.k8s.io/controller-publish-secret-name: '${pvc.name}', csi.storage.k8s.io/controller-publish-secret-namespace: storage}}\n",
			want: []string{"StorageClass c names the Secret for attaching by a template, storage/${pvc.name}"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := adopt.Options{Mode: test.mode, WithoutLeaderElection: true}
			if before := strings.Join(onlyPlan(t, manifest, o).Notes, "\n"); strings.Contains(before, test.want[0]) {
				t.Errorf("the unchanged manifest has the note: %s", before)
			}
			notes := strings.Join(onlyPlan(t, changed(t, test.change...)+test.more, o).Notes, "\n")
			for _, want := range test.want {
				if !strings.Contains(notes, want) {
					t.Errorf("no note has %q:\n%s", want, notes)
				}
			}
		})
	}
}

func TestTextsOfManifestsCannotActOnTheTerminal(t *testing.T) {
	p := onlyPlan(t, changed(t, "    spec:\n      containers", "    spec:\n      imagePullSecrets: [{name: \"a\\u001b[2Jb\"}]\n      containers"), adopt.Options{})
	if notes := strings.Join(p.Notes, ""); strings.Contains(notes, "\x1b") || !strings.Contains(notes, "[2Jb") {
		t.Errorf("%q", notes)
	}
}

func TestSecretsOfClassesAndVolumesOfTheDriver(t *testing.T) {
	class := func(driver, name string) string {
		return "---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: c}, provisioner: " + driver +
			", parameters: {csi.storage.k8s.io/controller-publish-secret-name: " + name + ", csi.storage.k8s.io/controller-publish-secret-namespace: keys, csi.storage.k8s.io/node-stage-secret-name: node}}\n"
	}
	volume := func(driver, name string) string {
		return "---\n{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {csi: {driver: " + driver + ", volumeHandle: h, controllerPublishSecretRef: {name: " + name + ", namespace: keys}}}}\n"
	}
	more := class("block.example.com", "a") + class("other.example.com", "b") + volume("block.example.com", "a") + volume("block.example.com", "c") + volume("other.example.com", "d")
	p := onlyPlan(t, manifest+more, adopt.Options{Secrets: []string{"given", "keys/a"}})
	want := []adopt.SecretName{{Namespace: "storage", Name: "given"}, {Namespace: "keys", Name: "a"}, {Namespace: "keys", Name: "c"}}
	if !slices.Equal(p.Secrets, want) {
		t.Errorf("%v, want %v", p.Secrets, want)
	}
	if p := onlyPlan(t, manifest, adopt.Options{}); len(p.Secrets) > 0 || !strings.Contains(strings.Join(p.Notes, ""), "controllerPublishSecretRef") {
		t.Errorf("Secrets %v, notes %q; want none, and how to find them", p.Secrets, p.Notes)
	}
}
