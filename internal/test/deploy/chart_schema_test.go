package deploy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const schemaFile = "chart/values.schema.json"

var update = flag.Bool("update", false, "write "+schemaFile)

// Whoever adds a setting to drivers.yaml, or changes a comment in values.yaml, runs this test with -update.
func TestChartSchemaFollowsDriversYAMLAndTheComments(t *testing.T) {
	var schema, drivers map[string]any
	current := readFile(t, schemaFile)
	if err := json.Unmarshal(current, &schema); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(registry.Schema(), &drivers); err != nil {
		t.Fatal(err)
	}
	ofFile, properties := drivers["properties"].(map[string]any), schema["properties"].(map[string]any)
	properties["defaults"], properties["discovery"] = ofFile["defaults"], ofFile["discovery"]
	// A map by name. The chart itself refuses a list, because it says how to write the map.
	entry := ofFile["drivers"].(map[string]any)["items"].(map[string]any)
	name := entry["properties"].(map[string]any)["name"]
	delete(entry["properties"].(map[string]any), "name")
	entry["required"] = slices.DeleteFunc(entry["required"].([]any), func(key any) bool { return key == "name" })
	properties["drivers"] = map[string]any{"type": []string{"object", "array"}, "propertyNames": name, "additionalProperties": entry}
	var file yaml.Node
	if err := yaml.Unmarshal(readFile(t, "chart/values.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	describe(t, file.Content[0], schema, "")
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(schemaFile, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want.String(), string(current)); diff != "" {
		t.Errorf("go test -run %s . -update writes the schema (-want +file):\n%s", t.Name(), diff)
	}
}

// describe gives each value of a mapping its comment as description. All keys of the mapping are in the schema and required:
// a template finds each.
func describe(t *testing.T, mapping *yaml.Node, schema map[string]any, prefix string) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	var keys []string
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		path := prefix + key.Value
		keys = append(keys, key.Value)
		property, ok := properties[key.Value].(map[string]any)
		if !ok {
			t.Errorf("%s: the schema has no %s", schemaFile, path)
			continue
		}
		if comment := strings.TrimSpace(strings.ReplaceAll("\n"+key.HeadComment, "\n#", "")); comment != "" {
			property["description"] = comment
		} else if value.Kind != yaml.MappingNode || len(value.Content) == 0 || value.Content[0].HeadComment == "" {
			t.Errorf("values.yaml: %s has no comment", path)
		}
		if property["additionalProperties"] == false && len(value.Content) > 0 && prefix+key.Value != "resources" {
			describe(t, value, property, path+".")
		}
	}
	required := []string{}
	for _, key := range schema["required"].([]any) {
		required = append(required, key.(string))
	}
	slices.Sort(keys)
	if diff := cmp.Diff(keys, required); diff != "" {
		t.Errorf("required keys of %q (-values.yaml +schema):\n%s", prefix, diff)
	}
	if extra := slices.DeleteFunc(slices.Sorted(maps.Keys(properties)), func(key string) bool {
		return slices.Contains(keys, key) || prefix == "" && slices.Contains([]string{"global"}, key)
	}); len(extra) > 0 {
		t.Errorf("values.yaml lacks %v of %q in the schema", extra, prefix)
	}
}

// Helm says the path of each wrong value and what is wrong.
func TestChartRefusesWrongValues(t *testing.T) {
	for _, wrong := range []struct{ values, says string }{
		{"driver: []", "additional properties 'driver' not allowed"},
		{"proxies: {enable: true}", "at '/proxies': additional properties 'enable' not allowed"},
		{"proxies: {enabled: 'yes'}", "at '/proxies/enabled': got string, want boolean"},
		{"proxies: {ports: [99999]}", "at '/proxies/ports/0': maximum: got 99,999, want 65,535"},
		{"proxies: {hostNetwork: [{cidr: 10.0.0.0/8}]}", "at '/proxies/hostNetwork/0': missing property 'ports'"},
		{"monitoring: null", "missing property 'monitoring'"},
		{"drivers: {a.example: {mode: observe}}", "at '/drivers/a.example': missing property 'endpoint'"},
		{"drivers: {a.example: {endpoint: 'unix:///a', worker: 3}}", "additional properties 'worker' not allowed"},
		{"drivers: {a_example: {endpoint: 'unix:///a'}}", "'a_example' does not match pattern"},
		{"defaults: {workers: 0}", "at '/defaults/workers': minimum: got 0, want 1"},
		{"leases: {extra: {kube-system: []}}", "at '/leases/extra/kube-system': minItems: got 0, want 1"},
		{"image: {digest: 'sha256:1234'}", "at '/image/digest': 'sha256:1234' does not match pattern"},
		{"shutdownGraceSeconds: 30s", "at '/shutdownGraceSeconds': got string, want integer"},
		{"resources: {limits: {memory: 512M}}", "at '/resources/limits/memory': '512M' does not match pattern"},
		{"networkPolicy: {apiServer: {cidrs: [10.0.0.1]}}", "at '/networkPolicy/apiServer/cidrs/0': '10.0.0.1' does not match pattern"},
		{"hostSockets: {path: sockets}", "at '/hostSockets/path': 'sockets' does not match pattern"},
	} {
		_, err := release{}.files(t, parseValues(t, wrong.values))
		if err == nil || !strings.Contains(err.Error(), wrong.says) {
			t.Errorf("%s: got %v, want %s", wrong.values, err, wrong.says)
		} else if lines := strings.Count(strings.TrimSpace(err.Error()), "\n- "); lines > 1 {
			t.Errorf("%s: %d errors instead of one: %v", wrong.values, lines, err)
		}
	}
}

func TestChartSaysWhyItRefusesValues(t *testing.T) {
	for _, wrong := range []struct {
		release      release
		values, says string
	}{
		{release{}, "drivers: [{name: a.example, endpoint: 'unix:///a', mode: observe}]",
			"drivers: this is a list; write a map by the names of the drivers, so that files of values can be merged:\n\ndrivers:\n  a.example:\n    endpoint: unix:///a\n    mode: observe\n"},
		{release{}, "drivers: {a.example: {endpoint: 'unix:///a', lease: {name: mine}}}",
			"drivers: a.example: the lease.name mine does not begin with external-attacher-leader-"},
		{release{}, "openshift: true\nhostSockets: {enabled: true}", "openshift, hostSockets.enabled: the security context constraint restricted-v2 allows neither"},
		{release{}, "image: {repository: 'r.example:5000/hub:latest'}", "image.repository: r.example:5000/hub:latest has a tag: write it as image.tag"},
		{release{}, withTLS, "drivers: a.example: tls.caFile /tls/a, drivers: a.example: tls.certFile /tls/b, drivers: a.example: tls.keyFile /tls/c: the Pod has no folder /tls: set proxies.enabled to true"},
		{release{}, "discovery: {csiDrivers: {enabled: true, allowedEndpoints: ['tcp://*.svc:9443'], tls: {caFile: /tls/a, certFile: /b, keyFile: /c}}}",
			"discovery.csiDrivers: tls.caFile /tls/a: the Pod has no folder /tls"},
	} {
		if _, err := wrong.release.files(t, parseValues(t, wrong.values)); err == nil || !strings.Contains(err.Error(), wrong.says) {
			t.Errorf("%s: got %v, want %s", wrong.values, err, wrong.says)
		}
	}
}

// TLS files may come from elsewhere, and a registry may have a port.
func TestChartTakesValuesThatLookWrong(t *testing.T) {
	for _, values := range []string{
		withTLS + "\nextraVolumes: [{name: mine, secret: {secretName: mine}}]\nextraVolumeMounts: [{name: mine, mountPath: /tls/}]",
		strings.ReplaceAll(withTLS, "/tls/", "/mine/"),
		"image: {repository: 'r.example:5000/hub'}",
	} {
		if _, err := (release{}).files(t, parseValues(t, values)); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

const withTLS = "drivers: {a.example: {endpoint: 'tcp://a.b.svc:9443', tls: {caFile: /tls/a, certFile: /tls/b, keyFile: /tls/c}}}"

// Before 1.30 there are no ValidatingAdmissionPolicies.
func TestChartHasAdmissionPoliciesWhereTheClusterKnowsThem(t *testing.T) {
	for version, want := range map[string]int{"v1.29.4": 0, "v1.30.0": 3} {
		n := 0
		for _, o := range (release{kubeVersion: version}).render(t, nil) {
			if o.GetKind() == "ValidatingAdmissionPolicy" {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d policies, want %d", version, n, want)
		}
	}
}

// A chart that has this chart as a part gives it the values global.
func TestChartCanBeAPartOfAnother(t *testing.T) {
	if _, err := (release{}).files(t, parseValues(t, "global: {region: north}")); err != nil {
		t.Error(err)
	}
}
