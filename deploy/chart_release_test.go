package deploy_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// everything are values with every object of the chart.
const everything = `
namespace: {create: true}
drivers: [{name: ebs.csi.aws.com, endpoint: "unix:///csi/a", lease: {namespace: kube-system}}]
secrets: {storage: [credentials]}
pods: {list: true}
proxies: {enabled: true, hostNetwork: [{cidr: 10.0.0.0/16, ports: [19240]}]}
hostSockets: {enabled: true}
admissionPolicy: {enabled: true}
monitoring: {enabled: true, serviceMonitor: {labels: {release: prometheus}}, rules: {labels: {release: prometheus}}}
dashboard: {enabled: true}
preflight: {job: {enabled: true}}
`

// The name of the release changes nothing: two hubs in one cluster would wait for each other's leases.
func TestChartIgnoresTheNameOfTheRelease(t *testing.T) {
	v := parseValues(t, everything)
	if diff := cmp.Diff(byName(t, release{}.render(t, v)), byName(t, release{name: "other"}.render(t, v))); diff != "" {
		t.Error(diff)
	}
}

// The objects for another namespace and another name are those for csi-attach-hub with that namespace and name, but for what
// proxies, leases of replicas and status know the hub by.
func TestChartFollowsTheNamespaceAndTheName(t *testing.T) {
	text := func(r release, more string) string {
		return string(r.manifests(t, parseValues(t, everything+more)))
	}
	namespace := regexp.MustCompile(`(namespace: |metadata\.name: |-n |serviceaccount:|request\.namespace == '|kind: Namespace\nmetadata:\n  name: |\.)csi-attach-hub(\b[^-./]|\.svc|$)`)
	want := namespace.ReplaceAllString(text(release{}, ""), "${1}storage-hub${2}")
	for i, line := range strings.Split(text(release{namespace: "storage-hub"}, ""), "\n") {
		if want := strings.Split(want, "\n")[i]; line != want {
			t.Errorf("in another namespace: got %s, want %s", line, want)
		}
	}

	// With both, the name is left only where it is fixed.
	fixed := regexp.MustCompile(`app\.kubernetes\.io/name: csi-attach-hub\b|dnsNames: \[csi-attach-hub\]|# Source: csi-attach-hub/|` +
		`csi-attach-hub (may|status|explain|volumes|validate)|csi-attach-hub-replica-|/etc/csi-attach-hub|image: csi-attach-hub|csi-attach-hub\.json|` +
		`/var/lib/csi-attach-hub|"(title|uid)": "csi-attach-hub"|(of|or|by|But|with|is|hub|the|that|beside|and) csi-attach-hub|^ *#.*|#.*`)
	for i, line := range strings.Split(text(release{namespace: "storage-hub"}, "\nfullnameOverride: attacher\n"), "\n") {
		if rest := fixed.ReplaceAllString(line, ""); strings.Contains(rest, "csi-attach-hub") {
			t.Errorf("line %d: %s", i+1, line)
		}
	}
}

// Leases have the names that the hub takes, also where an entry or the defaults name them otherwise.
func TestChartGrantsTheLeasesThatTheHubTakes(t *testing.T) {
	file := `
defaults: {lease: {namespace: shared}}
drivers:
  - {name: ebs.csi.aws.com, endpoint: "unix:///a", lease: {namespace: kube-system}}
  - {name: Upper.example.com, endpoint: "unix:///b", lease: {namespace: kube-system}}
  - {name: named.example.com, endpoint: "unix:///c", lease: {namespace: kube-system, name: of-its-own}}
  - {name: inherits.example.com, endpoint: "unix:///d"}
  - {name: hub.example.com, endpoint: "unix:///e", lease: {namespace: csi-attach-hub}}
  - {name: none.example.com, endpoint: "unix:///f", lease: {namespace: ""}}
`
	config, err := registry.Parse("drivers.yaml", []byte("apiVersion: attach-hub/v1alpha1\nkind: DriverConfig"+file))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"kube-system": {"external-attacher-leader-extra"}}
	for _, d := range config.Drivers() {
		if l := d.LeaseOf(); l.Namespace != "" && l.Namespace != "csi-attach-hub" {
			want[l.Namespace] = append(want[l.Namespace], l.Name)
		}
	}
	for _, names := range want {
		slices.Sort(names)
	}
	got := map[string][]string{}
	for _, o := range (release{}).render(t, parseValues(t, file+"leases: {extra: {kube-system: [external-attacher-leader-extra]}}")) {
		if o.GetKind() == "Role" && o.GetName() == "csi-attach-hub-leases" {
			got[o.GetNamespace()] = slices.Sorted(slices.Values(as[rbacv1.Role](t, o).Rules[0].ResourceNames))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("leases (-hub +chart):\n%s", diff)
	}
}

// A character that no lease may have at its end gets an x behind it.
func TestChartNamesLeasesAsTheHubDoes(t *testing.T) {
	for _, driver := range []string{"a.b.c", "A-b_c", "a/b", "x--y", "ends.", "ends-", "0"} {
		// As drivers.yaml allows no such name, the schema is left out.
		files, err := release{skipSchema: true}.files(t, chartValues{"drivers": []any{chartValues{"name": driver, "lease": chartValues{"namespace": "storage"}}}})
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("resourceNames: [%q]", registry.LeaseName(driver)); !strings.Contains(files["csi-attach-hub/templates/leases.yaml"], want) {
			t.Errorf("%q: no %s in %s", driver, want, files["csi-attach-hub/templates/leases.yaml"])
		}
	}
}

func TestChartGrantsAllSecretsOfANamespaceForAStar(t *testing.T) {
	objects := release{}.render(t, parseValues(t, `secrets: {volumes: ["*"]}`))
	role := as[rbacv1.Role](t, find(t, objects, "Role", "csi-attach-hub-secrets"))
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}
	if diff := cmp.Diff(want, role.Rules); diff != "" || role.Namespace != "volumes" {
		t.Errorf("namespace %s (-want +got):\n%s", role.Namespace, diff)
	}
}

func TestChartTakesTheImageByItsDigest(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for values, want := range map[string]string{
		"{}":                                 "csi-attach-hub:latest",
		"image: {repository: r.example/hub}": "r.example/hub:latest",
		"image: {repository: r.example/hub, tag: v1}":                                        "r.example/hub:v1",
		"image: {repository: r.example/hub, tag: v1, variant: root}":                         "r.example/hub:v1-root",
		"image: {repository: r.example/hub, tag: v1, variant: root, digest: " + digest + "}": "r.example/hub@" + digest,
	} {
		if got := hubOf(t, values).Spec.Template.Spec.Containers[0].Image; got != want {
			t.Errorf("%s: %s, want %s", values, got, want)
		}
	}
}

func hubOf(t *testing.T, text string) *appsv1.Deployment {
	t.Helper()
	return as[appsv1.Deployment](t, find(t, release{}.render(t, parseValues(t, text)), "Deployment", "csi-attach-hub"))
}

// The garbage collector works harder below the limit, whatever it is, and the Pod outlives its calls.
func TestChartDerivesTheMemoryLimitAndTheGracePeriod(t *testing.T) {
	for values, want := range map[string][2]string{
		"{}": {"450MiB", "45"},
		"resources: {limits: {memory: 2Gi}}\nshutdownGraceSeconds: 120": {"1802MiB", "135"},
		"resources: {limits: {memory: null}}\nshutdownGraceSeconds: 1":  {"", "16"},
	} {
		pod := hubOf(t, values).Spec.Template.Spec
		var limit string
		for _, e := range pod.Containers[0].Env {
			if e.Name == "GOMEMLIMIT" {
				limit = e.Value
			}
		}
		if got := [2]string{limit, fmt.Sprint(*pod.TerminationGracePeriodSeconds)}; got != want {
			t.Errorf("%s: %v, want %v", values, got, want)
		}
	}
}

// Nobody can change the label by which the Service and status find the Pods.
func TestChartKeepsTheLabelThatFindsThePods(t *testing.T) {
	hub := hubOf(t, "podLabels: {app.kubernetes.io/name: other, team: storage}\nnodeSelector: {disk: fast}\nhostSockets: {enabled: true, nodeSelector: {drivers: here}}")
	if diff := cmp.Diff(map[string]string{"app.kubernetes.io/name": "csi-attach-hub", "team": "storage"}, hub.Spec.Template.Labels); diff != "" {
		t.Error(diff)
	}
	// The nodes of hostSockets replace the control plane, which managed clusters do not have.
	if diff := cmp.Diff(map[string]string{"kubernetes.io/os": "linux", "disk": "fast", "drivers": "here"}, hub.Spec.Template.Spec.NodeSelector); diff != "" {
		t.Error(diff)
	}
}

func TestChartLeavesTheUserToOpenShift(t *testing.T) {
	template := hubOf(t, "openshift: true").Spec.Template
	if s := template.Spec.SecurityContext; s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil || !*s.RunAsNonRoot {
		t.Errorf("the security context is %v", s)
	}
	if scc := template.Annotations["openshift.io/required-scc"]; scc != "restricted-v2" {
		t.Errorf("it asks for %q", scc)
	}
}

// The network policies have what drivers.yaml and the network of the cluster need, and nothing else.
func TestChartOpensTheNetworkAsValuesSay(t *testing.T) {
	objects := release{}.render(t, parseValues(t, `
networkPolicy:
  apiServer: {ports: [6443], cidrs: [10.1.0.1/32, 10.1.0.2/32]}
  dns: {kubeSystem: false, nodeLocal: [169.254.20.10/32]}
openshift: true
drivers:
  - {name: second.example.com, endpoint: "tcp://second.storage.svc:9444", tls: {caFile: /tls/a, certFile: /tls/tls.crt, keyFile: /tls/tls.key}}
  - {name: socket.example.com, endpoint: "unix:///csi/a:1"}
discovery: {csiDrivers: {enabled: true, allowedEndpoints: ["unix:///*", "tcp://*.svc:9445", "tcp://*.svc:*"]}}
proxies: {enabled: true, ports: [9443], hostNetwork: [{cidr: 10.2.0.0/16, ports: [19240]}]}
`))
	rules := func(name string) string {
		text, err := json.Marshal(as[networkingv1.NetworkPolicy](t, find(t, objects, "NetworkPolicy", name)).Spec.Egress)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if diff := cmp.Diff(`[{"ports":[{"protocol":"TCP","port":6443}],"to":[{"ipBlock":{"cidr":"10.1.0.1/32"}},{"ipBlock":{"cidr":"10.1.0.2/32"}}]},`+
		`{"ports":[{"protocol":"UDP","port":53},{"protocol":"TCP","port":53}],"to":[{"ipBlock":{"cidr":"169.254.20.10/32"}}]},`+
		`{"ports":[{"protocol":"UDP","port":5353},{"protocol":"TCP","port":5353}],"to":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"openshift-dns"}}}]}]`,
		rules("csi-attach-hub")); diff != "" {
		t.Errorf("csi-attach-hub (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(`[{"ports":[{"protocol":"TCP","port":9443},{"protocol":"TCP","port":9445},{"protocol":"TCP","port":9444}],"to":[{"podSelector":{"matchLabels":{"attach-hub/proxy":"true"}},"namespaceSelector":{}}]},`+
		`{"ports":[{"protocol":"TCP","port":19240}],"to":[{"ipBlock":{"cidr":"10.2.0.0/16"}}]}]`,
		rules("csi-attach-hub-drivers")); diff != "" {
		t.Errorf("csi-attach-hub-drivers (-want +got):\n%s", diff)
	}
}

// Without cert-manager the Pod has the Secrets that values name, and the chart makes no certificate.
func TestChartTakesSecretsWithCertificates(t *testing.T) {
	const text = "proxies: {enabled: true, existingSecret: mine, driverCAs: theirs}"
	objects := release{}.render(t, parseValues(t, text))
	if slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GroupVersionKind().Group == "cert-manager.io" }) {
		t.Error("it makes certificates")
	}
	var names []string
	for _, v := range hubOf(t, text).Spec.Template.Spec.Volumes {
		if v.Projected != nil {
			names = append(names, v.Projected.Sources[0].Secret.Name, v.Projected.Sources[1].ConfigMap.Name)
		}
	}
	if diff := cmp.Diff([]string{"mine", "theirs"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
