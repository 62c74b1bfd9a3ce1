package deploy_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// alike are the kustomizations that values of the chart must give too, each with the files of these values.
var alike = []struct {
	folder string
	files  []string
	more   chartValues
}{
	// The example's drivers would add rights on their leases, which only overlays have.
	{install, nil, chartValues{"namespace": chartValues{"create": true}}},
	{withPods, nil, chartValues{"namespace": chartValues{"create": true}, "pods": chartValues{"list": true}}},
	{withNodeLocalDNS, nil, chartValues{"namespace": chartValues{"create": true},
		"networkPolicy": chartValues{"dns": chartValues{"nodeLocal": []any{"169.254.20.10/32"}}}}},
	{withPreflight, nil, chartValues{"namespace": chartValues{"create": true}, "proxies": chartValues{"enabled": true},
		"preflight": chartValues{"job": chartValues{"enabled": true}}}},
	{"overlays/proxies", []string{"chart/ci/proxies-values.yaml", "overlays/proxies/drivers.yaml"}, nil},
	{withSecrets, []string{"chart/ci/proxies-values.yaml", "overlays/proxies/drivers.yaml"},
		chartValues{"secrets": chartValues{"storage": []any{"vsphere-credentials"}}}},
	{withOpenShift, []string{"chart/ci/proxies-values.yaml", "overlays/proxies/drivers.yaml"}, chartValues{"openshift": true}},
	{"overlays/host-sockets", []string{"chart/ci/host-sockets-values.yaml", "overlays/host-sockets/drivers.yaml"}, nil},
}

// A change of the base or of a component fails here until the chart follows, and the other way round.
func TestChartIsTheSameAsTheKustomizations(t *testing.T) {
	for _, same := range alike {
		t.Run(same.folder, func(t *testing.T) {
			want := byName(t, build(t, same.folder))
			got := byName(t, release{}.render(t, mergeValues(readValues(t, same.files...), same.more)))
			if len(same.files) == 0 {
				drivers := want["ConfigMap csi-attach-hub/csi-attach-hub-drivers"].(map[string]any)["data"].(map[string]any)
				drivers["drivers.yaml"] = map[string]any{"apiVersion": "attach-hub/v1alpha1", "kind": "DriverConfig", "drivers": []any{}}
			}
			compare(t, want, got)
		})
	}
}

func compare(t *testing.T, kustomize, chart map[string]any) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(kustomize)) {
		if chart[name] == nil {
			t.Errorf("the chart lacks %s", name)
		} else if diff := cmp.Diff(kustomize[name], chart[name]); diff != "" {
			t.Errorf("%s (-kustomize +chart):\n%s", name, diff)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(chart)) {
		if kustomize[name] == nil {
			t.Errorf("kustomize lacks %s of the chart", name)
		}
	}
}

// byName returns objects as JSON has them, by kind, namespace and name. Of drivers.yaml only the meaning counts.
func byName(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, o := range objects {
		withoutExample(o)
		asCommon(o)
		text, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		var content map[string]any
		if err := json.Unmarshal(text, &content); err != nil {
			t.Fatal(err)
		}
		if data, _ := content["data"].(map[string]any); data["drivers.yaml"] != nil {
			data["drivers.yaml"] = parseDrivers(t, data["drivers.yaml"].(string))
		}
		name := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if all[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		all[name] = content
	}
	return all
}

func parseDrivers(t *testing.T, text string) map[string]any {
	t.Helper()
	var content map[string]any
	if err := sigsyaml.Unmarshal([]byte(text), &content); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return content
}

// withoutExample removes the names that keep the lists of components/leases and components/secrets from being empty.
func withoutExample(o *unstructured.Unstructured) {
	if o.GetKind() != "Role" {
		return
	}
	for _, r := range o.Object["rules"].([]any) {
		if names, ok := r.(map[string]any)["resourceNames"].([]any); ok {
			r.(map[string]any)["resourceNames"] = slices.DeleteFunc(names, func(name any) bool {
				return name == "EXAMPLE" || name == "external-attacher-leader-EXAMPLE"
			})
		}
	}
}

// asCommon removes from the Job preflight what only one side has: the chart its annotations for helm test, the component, which is
// for hubs without proxies too, a Secret that is optional.
func asCommon(o *unstructured.Unstructured) {
	if o.GetKind() != "Job" {
		return
	}
	o.SetAnnotations(nil)
	volumes, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "template", "spec", "volumes")
	for _, v := range volumes.([]any) {
		sources, _, _ := unstructured.NestedFieldNoCopy(v.(map[string]any), "projected", "sources")
		all, _ := sources.([]any)
		for _, source := range all {
			unstructured.RemoveNestedField(source.(map[string]any), "secret", "optional")
		}
	}
}

// drivers.yaml of the repository has every setting, every key of discovery, and each kind of endpoint.
func TestChartPassesDriversYAMLThrough(t *testing.T) {
	v := mergeValues(readValues(t, "../drivers.yaml"), at("proxies.enabled", true))
	config := byName(t, release{}.render(t, v))["ConfigMap csi-attach-hub/csi-attach-hub-drivers"].(map[string]any)
	if diff := cmp.Diff(parseDrivers(t, string(readFile(t, "../drivers.yaml"))), config["data"].(map[string]any)["drivers.yaml"]); diff != "" {
		t.Errorf("drivers.yaml (-repository +chart):\n%s", diff)
	}
	if configs, err := registry.ParseManifest("helm template", release{}.manifests(t, v)); err != nil || len(configs) != 1 {
		t.Errorf("csi-attach-hub validate: %d configurations, %v", len(configs), err)
	}
}
