package registry_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const driverA = header + "drivers:\n- {name: a, endpoint: 'unix:///a', timeout: 5s}\n"

// configMap is the manifest of a ConfigMap. Its value is a literal block, whose first line is
// the seventh of the manifest.
func configMap(key, value string) string {
	indented := "    " + strings.ReplaceAll(strings.TrimSuffix(value, "\n"), "\n", "\n    ")
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: drivers\ndata:\n  " + key + ": |2\n" + indented + "\n"
}

const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: hub}\n"

func TestConfigurationIsFoundInManifests(t *testing.T) {
	cm := configMap("drivers.yaml", driverA)
	inJSON, err := json.Marshal(map[string]any{"kind": "ConfigMap", "data": map[string]string{"drivers.yaml": driverA}})
	check(t, err)
	for name, test := range map[string]struct {
		manifest string
		sources  []string // of driver a in each configuration
	}{
		"the file itself":           {driverA, []string{"f:4"}},
		"ConfigMap":                 {cm, []string{"f:10"}},
		"ConfigMap with other keys": {cm + "  other: x\nbinaryData: {a: eA==}\n", []string{"f:10"}},
		"key of another name":       {configMap("a.yaml", driverA), []string{"f:10"}},
		"documents":                 {deployment + "---\n" + cm + "---\n---\n" + deployment, []string{"f:14"}},
		"two configurations":        {cm + "---\n" + cm, []string{"f:10", "f:21"}},
		"beside another ConfigMap":  {configMap("dashboard.json", "{}") + "---\n" + cm, []string{"f:18"}},
		"beside the YAML of others": {configMap("prometheus.yaml", "{}") + "---\n" + configMap("a.yaml", driverA), []string{"f:18"}},
		"chomped block":             {strings.Replace(cm, "|2", "|2-", 1), []string{"f:10"}},
		"blank lines first":         {configMap("drivers.yaml", "\n\n"+driverA), []string{"f:12"}},
		"JSON":                      {string(inJSON), []string{"f:1: drivers.yaml:4"}},
	} {
		t.Run(name, func(t *testing.T) {
			configs, err := registry.ParseManifest("f", []byte(test.manifest))
			check(t, err)
			var sources []string
			for _, c := range configs {
				sources = append(sources, c.Drivers()["a"].Source)
				if w := c.Warnings(); len(w) != 1 || !strings.HasPrefix(w[0].String(), c.Drivers()["a"].Source+": warning: drivers[0].timeout") {
					t.Errorf("the warnings are %v, want one at %s", w, c.Drivers()["a"].Source)
				}
			}
			if diff := cmp.Diff(test.sources, sources); diff != "" {
				t.Errorf("the places differ (-want +got):\n%s\n%s", diff, test.manifest)
			}
		})
	}
}

func TestManifestWithoutAConfigurationIsOneError(t *testing.T) {
	for name, test := range map[string]struct{ manifest, want string }{
		"other kinds":           {deployment + "---\n" + deployment, "f: holds neither a DriverConfig nor a ConfigMap with one: pass the file itself, or write it in the ConfigMap as text under the key drivers.yaml, or several under keys that end with .yaml"},
		"no key":                {deployment + "---\nkind: ConfigMap\n", "f: holds neither a DriverConfig nor a ConfigMap with one: pass the file itself, or write it in the ConfigMap as text under the key drivers.yaml, or several under keys that end with .yaml"},
		"two other keys":        {"kind: ConfigMap\ndata: {a: x, b: y}\n", "f: holds neither a DriverConfig nor a ConfigMap with one: pass the file itself, or write it in the ConfigMap as text under the key drivers.yaml, or several under keys that end with .yaml"},
		"two dashboards":        {configMap("a", "{}") + "---\n" + configMap("b", "{}"), "f: holds neither a DriverConfig nor a ConfigMap with one: pass the file itself, or write it in the ConfigMap as text under the key drivers.yaml, or several under keys that end with .yaml"},
		"a mapping, not a text": {"kind: ConfigMap\ndata:\n  drivers.yaml:\n    drivers: []\n", `f:4: drivers.yaml: must be a block of text (drivers.yaml: |), not a mapping`},
		"no value":              {"kind: ConfigMap\ndata:\n  drivers.yaml:\n", `f:3: drivers.yaml: has no value: write a block of text (drivers.yaml: |)`},
		"empty text":            {"kind: ConfigMap\ndata:\n  drivers.yaml: ''\n", "f:3: drivers.yaml: the configuration is empty: write apiVersion: attach-hub/v1alpha1, kind: DriverConfig and drivers: [] for no drivers"},
		"invalid manifest":      {"kind: ConfigMap\ndata: {\n", "f:2: invalid YAML: did not find expected node content"},
		"invalid second":        {configMap("drivers.yaml", driverA) + "---\ndata: [}\n", "f:12: invalid YAML: did not find expected node content"},
		"DriverConfig beside a ConfigMap": {configMap("drivers.yaml", driverA) + "---\n" + driverA,
			"f:12: a DriverConfig is not a Kubernetes object: put it into a ConfigMap under a key that ends with .yaml"},
		"nothing":   {"---\n", "f: the configuration is empty: write apiVersion: attach-hub/v1alpha1, kind: DriverConfig and drivers: [] for no drivers"},
		"too large": {driverA + "#" + strings.Repeat("x", 4<<20), "f: the file has more than 4194304 bytes, which is the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			configs, err := registry.ParseManifest("f", []byte(test.manifest))
			list, ok := errors.AsType[registry.Errors](err)
			if configs != nil || !ok || len(list) != 1 || err.Error() != test.want {
				t.Errorf("got %v and %T:\n%v\nwant\n%s", configs, err, err, test.want)
			}
		})
	}
}

func TestMistakesOfAllConfigMapsAreReported(t *testing.T) {
	bad := configMap("drivers.yaml", "kind: x\n")
	_, err := registry.ParseManifest("f", []byte(bad+"---\n"+configMap("drivers.yaml", driverA)+"---\n"+bad))
	list, _ := errors.AsType[registry.Errors](err)
	var lines []int
	for _, e := range list {
		lines = append(lines, e.Line)
	}
	if diff := cmp.Diff([]int{7, 7, 7, 26, 26, 26}, lines); diff != "" {
		t.Errorf("the lines differ (-want +got):\n%s\n%v", diff, err)
	}
}

func TestKeysOfAConfigMapAreTheFilesOfOneFolder(t *testing.T) {
	key := func(name, value string) string {
		_, text, _ := strings.Cut(configMap(name, value), "\ndata:\n")
		return text
	}
	inQuotes := func(name, value string) string {
		quoted, _ := json.Marshal(value)
		return fmt.Sprintf("  %s: %s\n", name, quoted)
	}
	first := configMap("_defaults.yaml", header+"defaults: {workers: 7}\ndrivers: []\n")
	for name, test := range map[string]struct{ manifest, drivers, errors string }{
		"defaults of another key": {first + key("b.yaml", driver("b", "/b")) + key("a.yaml", driver("a", "/a")), "a@f:18 with 7, b@f:14 with 7", ""},
		"other keys":              {first + key("b.yaml", driver("b", "/b")) + "  other.json: '{'\nbinaryData: {logo: eA==}\n", "b@f:14 with 7", ""},
		"in quotes":               {first + inQuotes("b.yaml", driver("b", "/b")), "b@f:11: b.yaml:3 with 7", ""},
		"two that are wrong": {first + key("b.yaml", typo) + key("c.yaml", typo), "",
			`f:14: drivers[0].endpoint: "a.sock" is not an endpoint: write unix:///path/to/csi.sock or tcp://host:port
f:18: drivers[0].endpoint: "a.sock" is not an endpoint: write unix:///path/to/csi.sock or tcp://host:port`},
		"wrong, as the defaults are": {configMap("_.yaml", header+"defaults: {worker: 7}\ndrivers: []\n") + key("b.yaml", typo), "",
			`f:9: defaults.worker: unknown key: did you mean workers?
f:14: drivers[0].endpoint: "a.sock" is not an endpoint: write unix:///path/to/csi.sock or tcp://host:port`},
		"wrong by the defaults": {configMap("_.yaml", header+"defaults: {retry: {max: 2s}}\ndrivers: []\n") +
			key("b.yaml", header+"drivers: [{name: b, endpoint: \"unix:///b\", retry: {initial: 3s}}]\n"), "",
			"f:14: drivers[0].retry.initial: must not be above retry.max, which is 2s: lower one or raise the other"},
		"defaults twice": {first + key("b.yaml", driver("b", "/b", "defaults: {}\n")), "",
			"f:9: defaults: are in f:14 too: write them in one file only\nf:14: defaults: are in f:9 too: write them in one file only"},
		"empty": {first + key("b.yaml", "# none"), "",
			"f:11: the configuration is empty: write apiVersion: attach-hub/v1alpha1, kind: DriverConfig and drivers: [] for no drivers"},
		"a name that the hub does not read": {first + key("b.yml", driver("b", "/b")), "", "f:11: is not read, because its name ends with .yml: rename it to b.yaml, or remove it"},
	} {
		t.Run(name, func(t *testing.T) {
			configs, err := registry.ParseManifest("f", []byte(test.manifest))
			if test.errors != "" {
				if err == nil || err.Error() != test.errors {
					t.Errorf("got\n%v\nwant\n%s", err, test.errors)
				}
				return
			}
			check(t, err)
			var got []string
			for name, d := range configs[0].Drivers() {
				got = append(got, fmt.Sprintf("%s@%s with %d", name, d.Source, d.Workers))
			}
			slices.Sort(got)
			if text := strings.Join(got, ", "); text != test.drivers || len(configs) != 1 {
				t.Errorf("%d configurations, the first with %s, want %s", len(configs), text, test.drivers)
			}
		})
	}
}

func TestSeveralDocumentsOfDriversAreOneMistake(t *testing.T) {
	_, err := registry.ParseManifest("f", []byte(driverA+"---\n"+driverA))
	if want := "f:6: a second YAML document begins here: put all drivers into one document"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A manifest has a configuration or mistakes, each on one line, and never makes the parser panic.
func FuzzParseManifest(f *testing.F) {
	cm := configMap("drivers.yaml", driverA)
	for _, seed := range []string{driverA, cm, deployment + "---\n" + cm, "kind: ConfigMap\ndata: {a: \"kind: x\\n\"}\n",
		"kind: ConfigMap\ndata: {\"a\\n.yaml\": []}\n", "a: &a [*a]\nkind: ConfigMap\ndata: *a\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		configs, err := registry.ParseManifest("f", data)
		mistakes, _ := errors.AsType[registry.Errors](err)
		if (len(configs) > 0) == (len(mistakes) > 0) {
			t.Fatalf("%d configurations and %v", len(configs), err)
		}
		for _, e := range mistakes {
			if e.Message == "" || strings.ContainsAny(e.Error(), "\n\r\x00\x1b") {
				t.Errorf("not one line: %q", e.Error())
			}
		}
	})
}
