package deploy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// everything are values with every object of the chart.
const everything = `
namespace: {create: true}
drivers: {ebs.csi.aws.com: {endpoint: "unix:///csi/a", lease: {namespace: kube-system}, secrets: [storage/credentials]}}
proxies: {enabled: true, trustManager: {enabled: true}, hostNetwork: [{cidr: 10.0.0.0/16, ports: [19240]}]}
hostSockets: {enabled: true}
monitoring: {enabled: true, serviceMonitor: {labels: {release: prometheus}}, rules: {labels: {release: prometheus}}}
dashboard: {enabled: true}
`

// The name of the release is in a label only: two hubs in one cluster would wait for each other's leases.
func TestChartIgnoresTheNameOfTheRelease(t *testing.T) {
	v := parseValues(t, everything)
	want := strings.ReplaceAll(string(release{}.manifests(t, v)), "/instance: csi-attach-hub\n", "/instance: other\n")
	if diff := cmp.Diff(want, string(release{name: "other"}.manifests(t, v))); diff != "" {
		t.Error(diff)
	}
}

// With another namespace and another name, csi-attach-hub is left only where it is fixed: in what proxies, leases of replicas and status
// know the hub by, and in texts.
func TestChartFollowsTheNamespaceAndTheName(t *testing.T) {
	fixed := regexp.MustCompile(`app\.kubernetes\.io/name: csi-attach-hub\b|helm\.sh/chart: csi-attach-hub-|dnsNames: \[csi-attach-hub\]|# Source: csi-attach-hub/|` +
		`csi-attach-hub (may|status|explain|volumes|validate)|csi-attach-hub-replica-|ValidatingAdmissionPolicy csi-attach-hub-\*|\["csi-attach-hub", "ancient-changes"\]|/etc/csi-attach-hub|image: csi-attach-hub|csi-attach-hub\.json|` +
		`/var/lib/csi-attach-hub|"(title|uid)": "csi-attach-hub"|- name: csi-attach-hub$|(of|or|by|But|with|is|hub|the|that|beside|and) csi-attach-hub|^ *#.*|#.*`)
	for _, name := range []string{"fullnameOverride: attacher\n", "nameOverride: attacher\n", "nameOverride: unused\nfullnameOverride: attacher\n"} {
		text := string(release{name: "r", namespace: "storage-hub"}.manifests(t, parseValues(t, everything+name)))
		for i, line := range strings.Split(text, "\n") {
			if rest := fixed.ReplaceAllString(line, ""); strings.Contains(rest, "csi-attach-hub") || strings.Contains(rest, "unused") {
				t.Errorf("line %d: %s", i+1, line)
			}
		}
	}
}

// Every object says which chart and release made it. A selector has none of that: it cannot be changed.
func TestObjectsHaveTheStandardLabels(t *testing.T) {
	for _, o := range objectsOf(t, everything) {
		want := map[string]string{"app.kubernetes.io/name": "csi-attach-hub", "app.kubernetes.io/instance": "csi-attach-hub", "app.kubernetes.io/managed-by": "Helm",
			"app.kubernetes.io/version": "latest", "helm.sh/chart": "csi-attach-hub-0.1.0"}
		got := o.GetLabels()
		maps.DeleteFunc(got, func(key, _ string) bool { return want[key] == "" })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", o.GetKind(), o.GetName(), diff)
		}
	}
	if got := hubOf(t, everything).Spec.Selector.MatchLabels; !maps.Equal(got, map[string]string{"app.kubernetes.io/name": "csi-attach-hub"}) {
		t.Errorf("the selector is %v", got)
	}
}

// With serviceAccount.create: false the rights go to an account that somebody else makes.
func TestChartUsesAnotherServiceAccount(t *testing.T) {
	text := everything + "serviceAccount: {create: false, name: theirs}\n"
	objects := objectsOf(t, text)
	if i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "ServiceAccount" && o.GetName() == "theirs"
	}); i >= 0 {
		t.Error("the chart makes it")
	}
	if got := hubOf(t, text).Spec.Template.Spec.ServiceAccountName; got != "theirs" {
		t.Errorf("the Pods run as %s", got)
	}
	manifests := string(release{}.manifests(t, parseValues(t, text)))
	if n := strings.Count(manifests, "system:serviceaccount:csi-attach-hub:theirs"); n != 3 {
		t.Errorf("%d policies are for it", n)
	}
	if i := strings.Index(manifests, "kind: ServiceAccount\n    name: csi-attach-hub\n"); i >= 0 {
		t.Errorf("a right is for another: %s", manifests[max(0, i-400):i+60])
	}
}

func TestChartAddsObjectsOfTheUser(t *testing.T) {
	objects := objectsOf(t, `extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: mine, namespace: "{{ .Release.Namespace }}"}}]`)
	if o := find(t, objects, "ConfigMap", "mine"); o.GetNamespace() != "csi-attach-hub" {
		t.Errorf("got %v", o)
	}
}

// Leases have the names that the hub takes, also where an entry or the defaults name them otherwise.
func TestChartGrantsTheLeasesThatTheHubTakes(t *testing.T) {
	objects := objectsOf(t, `
defaults: {lease: {namespace: shared}}
drivers:
  ebs.csi.aws.com: {endpoint: "unix:///a", lease: {namespace: kube-system}}
  Upper.example.com: {endpoint: "unix:///b", lease: {namespace: kube-system}}
  named.example.com: {endpoint: "unix:///c", lease: {namespace: kube-system, name: of-its-own}}
  inherits.example.com: {endpoint: "unix:///d"}
  hub.example.com: {endpoint: "unix:///e", lease: {namespace: csi-attach-hub}}
  none.example.com: {endpoint: "unix:///f", lease: {namespace: ""}}
admissionPolicy: {enabled: false}
leases: {extra: {kube-system: [external-attacher-leader-extra]}}
`)
	files, err := yaml.Marshal(find(t, objects, "ConfigMap", "csi-attach-hub-drivers"))
	if err != nil {
		t.Fatal(err)
	}
	configs, err := registry.ParseManifest("drivers", files)
	if err != nil || len(configs) != 1 {
		t.Fatalf("%d configurations, %v", len(configs), err)
	}
	want := map[string][]string{"kube-system": {"external-attacher-leader-extra"}}
	for _, d := range configs[0].Drivers() {
		if l := d.LeaseOf(); l.Namespace != "" && l.Namespace != "csi-attach-hub" {
			want[l.Namespace] = append(want[l.Namespace], l.Name)
		}
	}
	for _, names := range want {
		slices.Sort(names)
	}
	got := map[string][]string{}
	for _, o := range objects {
		if o.GetKind() == "Role" && o.GetName() == "csi-attach-hub-leases" {
			got[o.GetNamespace()] = slices.Sorted(slices.Values(as[rbacv1.Role](t, o).Rules[0].ResourceNames))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("leases (-hub +chart):\n%s", diff)
	}
}

// The hub may read the Secrets that drivers list, and no others.
func TestChartGrantsTheSecretsThatDriversList(t *testing.T) {
	got := map[string][]string{}
	for _, o := range objectsOf(t, `
defaults: {secrets: [shared/inherited]}
drivers:
  a.example: {endpoint: "unix:///a", secrets: [storage/one, storage/two, volumes/*]}
  b.example: {endpoint: "unix:///b", secrets: [storage/two, volumes/three]}
  c.example: {endpoint: "unix:///c"}
  d.example: {endpoint: "unix:///d", secrets: []}
`) {
		if o.GetKind() == "Role" && o.GetName() == "csi-attach-hub-secrets" {
			got[o.GetNamespace()] = grants(t, o, o.GetNamespace())
		}
	}
	want := map[string][]string{
		"shared":  {"get secrets/inherited in namespace shared"},
		"storage": {"get secrets/one in namespace storage", "get secrets/two in namespace storage"},
		"volumes": {"get secrets in namespace volumes"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Discovered drivers have the list of defaults.
	find(t, objectsOf(t, "defaults: {secrets: [shared/inherited]}\ndiscovery: {csiDrivers: {enabled: true, allowedEndpoints: ['unix:///csi/*']}}"), "Role", "csi-attach-hub-secrets")
}

func TestChartTakesTheImageByItsDigest(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for values, want := range map[string]string{
		"{}":                                 "csi-attach-hub:latest",
		"image: {repository: r.example/hub}": "r.example/hub:latest",
		"image: {repository: r.example/hub, tag: v1}":                         "r.example/hub:v1",
		"image: {repository: r.example/hub, tag: v1, digest: " + digest + "}": "r.example/hub@" + digest,
	} {
		if got := hubOf(t, values).Spec.Template.Spec.Containers[0].Image; got != want {
			t.Errorf("%s: %s, want %s", values, got, want)
		}
	}
}

// The garbage collector works harder below the limit, whatever it is, and the Pod outlives its calls. A variable of the user replaces that
// of the chart: a list with both is refused.
func TestChartDerivesTheEnvironmentAndTheGracePeriod(t *testing.T) {
	for values, want := range map[string][3]string{
		"{}": {testbed.HubGOGC, "450MiB", "45"},
		"resources: {limits: {memory: 2Gi}}\nshutdownGraceSeconds: 120":           {testbed.HubGOGC, "1802MiB", "135"},
		"resources: {limits: {memory: null}}\nshutdownGraceSeconds: 1":            {testbed.HubGOGC, "", "16"},
		"extraEnv: [{name: GOGC, value: '100'}, {name: GOMEMLIMIT, value: 1MiB}]": {"100", "1MiB", "45"},
	} {
		pod := hubOf(t, values).Spec.Template.Spec
		got := [3]string{2: fmt.Sprint(*pod.TerminationGracePeriodSeconds)}
		for _, e := range pod.Containers[0].Env {
			switch e.Name {
			case "GOGC":
				got[0] += e.Value
			case "GOMEMLIMIT":
				got[1] += e.Value
			}
		}
		if got != want {
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

// The network policies have what drivers.yaml and the network of the cluster need, and nothing else.
func TestChartOpensTheNetworkAsValuesSay(t *testing.T) {
	objects := release{}.render(t, parseValues(t, `
networkPolicy:
  apiServer: {ports: [6443], cidrs: [10.1.0.1/32, 10.1.0.2/32]}
  dns: {kubeSystem: false, nodeLocal: [169.254.20.10/32]}
openshift: true
drivers:
  second.example.com: {endpoint: "tcp://second.storage.svc:9444", tls: {caFile: /tls/a, certFile: /tls/tls.crt, keyFile: /tls/tls.key}}
  socket.example.com: {endpoint: "unix:///csi/a:1"}
monitoring: {enabled: true}
discovery: {csiDrivers: {enabled: true, allowedEndpoints: ["unix:///*", "tcp://*.svc:9445", "tcp://*.svc:*"]}}
proxies: {enabled: true, ports: [9443], hostNetwork: [{cidr: 10.2.0.0/16, ports: [19240]}]}
`))
	const inside, dns = `{"ports":[{"protocol":"TCP","port":443},{"protocol":"TCP","port":6443},{"protocol":"TCP","port":8443},{"protocol":"TCP","port":16443}]}`,
		`{"ports":[{"protocol":"UDP","port":53},{"protocol":"TCP","port":53}],"to":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"kube-system"}}}]}`
	if diff := cmp.Diff("["+inside+","+dns+"]", egressOf(t, objectsOf(t, ""), "csi-attach-hub")); diff != "" {
		t.Errorf("without values (-want +got):\n%s", diff)
	}
	from := as[networkingv1.NetworkPolicy](t, find(t, objects, "NetworkPolicy", "csi-attach-hub-metrics")).Spec.Ingress[0].From
	if got := from[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]; len(from) != 1 || got != "openshift-user-workload-monitoring" {
		t.Errorf("metrics are open to %v", from)
	}
	rules := func(name string) string { return egressOf(t, objects, name) }
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

func egressOf(t *testing.T, objects []*unstructured.Unstructured, name string) string {
	t.Helper()
	text, err := json.Marshal(as[networkingv1.NetworkPolicy](t, find(t, objects, "NetworkPolicy", name)).Spec.Egress)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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
