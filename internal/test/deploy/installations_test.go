package deploy_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Values of the chart, as users have them.
const (
	// ofInstallYAML are those that install.yaml is rendered from.
	ofInstallYAML = "namespace: {create: true}\n"

	withProxies = ofInstallYAML + `
drivers:
  csi.vsphere.vmware.com:
    mode: observe
    endpoint: tcp://attach-hub-csi-vsphere-vmware-com.storage.svc:9443
    tls: {caFile: /tls/csi.vsphere.vmware.com.crt, certFile: /tls/tls.crt, keyFile: /tls/tls.key, serverName: attach-hub-csi-vsphere-vmware-com}
    lease: {namespace: storage}
proxies: {enabled: true}
monitoring: {enabled: true}
dashboard: {enabled: true}
`
	withHostSockets = ofInstallYAML + `
drivers:
  ebs.csi.aws.com: {mode: observe, endpoint: "unix:///csi/ebs.csi.aws.com/csi.sock", lease: {namespace: kube-system}}
hostSockets: {enabled: true}
`
	withOpenShift = withProxies + "openshift: true\n"
	withSecrets   = withProxies + "defaults: {secrets: [storage/vsphere-credentials]}\n"
)

var installations = []string{ofInstallYAML, withProxies, withHostSockets, withOpenShift, withSecrets}

// objectsOf returns the objects of the chart with these values.
func objectsOf(t *testing.T, values string) []*unstructured.Unstructured {
	t.Helper()
	return release{}.render(t, parseValues(t, values))
}

// ofHelm are labels that would mislead on objects that kubectl applies.
var ofHelm = regexp.MustCompile(`(?m)^ +(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n`)

// Whoever changes the chart runs `make manifests`.
func TestInstallYAMLIsRenderedFromTheChart(t *testing.T) {
	want := append([]byte("# Rendered from deploy/chart by `make manifests`. deploy/README.md says how to use it.\n"),
		ofHelm.ReplaceAll(release{}.manifests(t, parseValues(t, ofInstallYAML)), nil)...)
	if *update {
		if err := os.WriteFile("install.yaml", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(want, readFile(t, "install.yaml")) {
		t.Error("install.yaml is old: make manifests")
	}
}

// `csi-attach-hub validate -` finds the drivers in rendered manifests, and the line of a mistake.
func TestRenderedManifestsCanBeValidated(t *testing.T) {
	for _, values := range installations {
		manifests := release{}.manifests(t, parseValues(t, values))
		if configs, err := registry.ParseManifest("rendered", manifests); err != nil || len(configs) != 1 {
			t.Errorf("%s: %d configurations, %v", values, len(configs), err)
		}
		broken := bytes.ReplaceAll(manifests, []byte("    kind: DriverConfig\n"), []byte("    kind: Drivers\n")) // _defaults.yaml, and each driver
		var want []string
		for i, line := range strings.Split(string(broken), "\n") {
			if line == "    kind: Drivers" {
				want = append(want, fmt.Sprintf("rendered:%d: kind: must be DriverConfig, not the string \"Drivers\"", i+1))
			}
		}
		if _, err := registry.ParseManifest("rendered", broken); err == nil || err.Error() != strings.Join(want, "\n") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// What the documents show as values makes a hub with a driver.
func TestValuesOfTheDocumentsAreValid(t *testing.T) {
	for _, document := range []string{"README.md", "chart/README.md"} {
		block := regexp.MustCompile("(?s)```yaml\n(# mine.yaml\n.*?)```").FindSubmatch(readFile(t, document))
		if block == nil {
			t.Fatalf("%s has no mine.yaml", document)
		}
		if configs, err := registry.ParseManifest(document, release{}.manifests(t, parseValues(t, string(block[1])))); err != nil || len(configs) != 1 || len(configs[0].Drivers()) != 1 {
			t.Errorf("%s: %d configurations, %v", document, len(configs), err)
		}
	}
}

// The example makes of install.yaml what the chart makes with values, but for the monitoring.
func TestExampleMakesWhatTheChartMakes(t *testing.T) {
	want := byName(t, objectsOf(t, strings.NewReplacer("monitoring: {enabled: true}", "", "dashboard: {enabled: true}", "image: {repository: registry.example.com/csi-attach-hub, tag: v1}").Replace(withProxies)))
	dir := filepath.Join(t.TempDir(), "mine")
	if err := os.CopyFS(dir, os.DirFS("example")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "install.yaml"), readFile(t, "install.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := byName(t, build(t, dir))
	for _, objects := range []map[string]any{want, got} {
		for _, o := range objects {
			delete(o.(map[string]any)["metadata"].(map[string]any), "labels")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-chart +example):\n%s", diff)
	}
}
