package deploy_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// chartValues are those of a release of the chart.
type chartValues = map[string]any

// readValues returns the values of files, as `helm --values` for each does.
func readValues(t *testing.T, paths ...string) chartValues {
	t.Helper()
	all := chartValues{}
	for _, path := range paths {
		all = mergeValues(all, parseValues(t, string(readFile(t, path))))
	}
	return all
}

func parseValues(t *testing.T, text string) chartValues {
	t.Helper()
	v, err := common.ReadValues([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// mergeValues returns the values of both; those of over take precedence.
func mergeValues(under, over chartValues) chartValues {
	return util.MergeTables(maps.Clone(over), under)
}

// release says how the chart is rendered. The zero value is `helm install csi-attach-hub --namespace csi-attach-hub`.
type release struct {
	name, namespace string
	kubeVersion     string // "" for 1.37
}

// files returns what the chart's templates are rendered to, by path, as `helm template` does.
func (r release) files(t *testing.T, v chartValues) (map[string]string, error) {
	t.Helper()
	chart, err := loader.Load("chart")
	if err != nil {
		t.Fatal(err)
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *kubeVersion(t, cmp.Or(r.kubeVersion, "v1.37.0"))
	const hub = "csi-attach-hub"
	options := common.ReleaseOptions{Name: cmp.Or(r.name, hub), Namespace: cmp.Or(r.namespace, hub), Revision: 1, IsInstall: true}
	rendered, err := util.ToRenderValues(chart, v, options, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.RenderWithContext(t.Context(), chart, rendered)
}

func kubeVersion(t *testing.T, version string) *common.KubeVersion {
	t.Helper()
	parsed, err := common.ParseKubeVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// render returns the objects that the chart is rendered to.
func (r release) render(t *testing.T, v chartValues) []*unstructured.Unstructured {
	t.Helper()
	files, err := r.files(t, v)
	if err != nil {
		t.Fatalf("values %v: %v", v, err)
	}
	var objects []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".yaml" {
			continue
		}
		objects = append(objects, decoded(t, []byte(files[name]))...)
	}
	return objects
}

// decoded returns the objects of several documents.
func decoded(t *testing.T, text []byte) (objects []*unstructured.Unstructured) {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var content map[string]any
		if err := decoder.Decode(&content); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if content != nil {
			objects = append(objects, &unstructured.Unstructured{Object: content})
		}
	}
}

// manifests are the objects in the form of `helm template`.
func (r release) manifests(t *testing.T, v chartValues) []byte {
	t.Helper()
	files, err := r.files(t, v)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".yaml" {
			all = append(append(all, "---\n# Source: "+name+"\n"...), files[name]...)
		}
	}
	return all
}

// byName returns objects as JSON has them, by kind, namespace and name. Of the files of drivers only the meaning counts.
func byName(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, o := range objects {
		text, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		var content map[string]any
		if err := json.Unmarshal(text, &content); err != nil {
			t.Fatal(err)
		}
		data, _ := content["data"].(map[string]any)
		for key, text := range data {
			if path.Ext(key) == ".yaml" {
				data[key] = parseDrivers(t, text.(string))
			}
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

func TestChartPassesHelmLint(t *testing.T) {
	for _, v := range append([]chartValues{{}}, pairwise(t)...) {
		for _, message := range lint.RunAll("chart", v, "csi-attach-hub", lint.WithKubeVersion(kubeVersion(t, "v1.37.0"))).Messages {
			if message.Path != "Chart.yaml" || message.Err.Error() != "icon is recommended" {
				t.Errorf("values %v: %v", v, message)
			}
		}
	}
}

// drivers.yaml of the repository has every setting, every key of discovery, and each kind of endpoint. Each of its drivers becomes a file.
func TestChartPassesDriversYAMLThrough(t *testing.T) {
	all := parseDrivers(t, string(readFile(t, "../drivers.yaml")))
	v := chartValues{"proxies": chartValues{"enabled": true}, "defaults": all["defaults"], "discovery": all["discovery"]}
	drivers, want := chartValues{}, map[string]any{"_defaults.yaml": all}
	for _, d := range all["drivers"].([]any) {
		entry := maps.Clone(d.(map[string]any))
		name := entry["name"].(string)
		delete(entry, "name")
		drivers[name] = entry
		want[name+".yaml"] = map[string]any{"apiVersion": all["apiVersion"], "kind": all["kind"], "drivers": []any{d}}
	}
	v["drivers"], all["drivers"] = drivers, []any{}
	config := byName(t, release{}.render(t, v))["ConfigMap csi-attach-hub/csi-attach-hub-drivers"].(map[string]any)
	if diff := gocmp.Diff(want, config["data"]); diff != "" {
		t.Errorf("the files of drivers (-repository +chart):\n%s", diff)
	}
}

// What Helm prints after an installation says what is left to do, and names nothing that a user of the chart alone lacks: neither the
// command nor files of the repository.
func TestNotesOfTheChartSayWhatToDoNext(t *testing.T) {
	const drivers = "drivers: {a.example: {endpoint: 'unix:///a'}}\n"
	for _, c := range []struct {
		release       release
		values        string
		says, saysNot []string
	}{
		{release{}, "", []string{"drivers is empty", "exec -i deployment/csi-attach-hub -- /csi-attach-hub adopt -", "/csi-attach-hub status --server"},
			[]string{"privileged", "certificates", "older than"}},
		{release{namespace: "storage-hub"}, drivers + "fullnameOverride: mine\n", []string{"kubectl -n storage-hub exec deployment/mine -- ", "1 driver"}, []string{"is empty"}},
		{release{}, "proxies: {enabled: true}", []string{"certificates"}, nil},
		{release{}, "hostSockets: {enabled: true}", []string{"pod-security.kubernetes.io/enforce=privileged"}, nil},
		{release{}, "hostSockets: {enabled: true}\nnamespace: {create: true}", nil, []string{"privileged"}},
		{release{kubeVersion: "v1.29.4"}, "", []string{"v1.29.4 is older than Kubernetes 1.30"}, nil},
	} {
		files, err := c.release.files(t, parseValues(t, c.values))
		if err != nil {
			t.Fatal(err)
		}
		notes := files["csi-attach-hub/templates/NOTES.txt"]
		for _, text := range c.says {
			if !strings.Contains(notes, text) {
				t.Errorf("%q: the notes lack %q:\n%s", c.values, text, notes)
			}
		}
		for _, text := range append(c.saysNot, " deploy/", "  csi-attach-hub ") {
			if strings.Contains(notes, text) {
				t.Errorf("%q: the notes have %q:\n%s", c.values, text, notes)
			}
		}
	}
}
