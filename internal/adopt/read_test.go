package adopt

import (
	"fmt"
	"strings"
	"testing"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"

func TestEveryDocumentIsRead(t *testing.T) {
	for name, text := range map[string]string{
		"separators with comments": "--- # first\n" + configMap + "--- # second\n" + configMap,
		"line ends of Windows":     strings.ReplaceAll("---\n"+configMap+"---\n"+configMap+"---\n", "\n", "\r\n"),
		"a mark of bytes":          "\ufeff" + configMap + "---\n# nothing\n---\n" + configMap,
		"JSON":                     `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"A"},{"apiVersion":"v1","kind":"B"}]}`,
		"ends":                     configMap + "...\n---\n" + configMap + "...\n",
	} {
		if objects, err := Read("f", strings.NewReader(text)); err != nil || len(objects) != 2 {
			t.Errorf("%s: %d objects, %v; want 2", name, len(objects), err)
		}
	}
}

func TestItemsOfAListHaveTheirOwnPlace(t *testing.T) {
	objects := read(t, "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: A, metadata: {name: a}}, {apiVersion: v1, kind: B, metadata: {name: b}}]}")
	if got := objects[1].String(); got != "file.yaml: document 1: items[1] (B b)" || objects[0].Source == objects[1].Source {
		t.Errorf("%s", got)
	}
}

func TestEachDocumentThatCannotBeReadIsNamed(t *testing.T) {
	const bomb = "apiVersion: v1\nkind: A\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
		"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n"
	for _, test := range []struct{ text, want string }{
		{"a: b: c", "mapping values are not allowed"},
		{"just words", "want a mapping with apiVersion and kind"},
		{"[a, b]", "want a mapping"},
		{"kind: ConfigMap", "want a mapping with apiVersion and kind"},
		{"apiVersion: v1\nkind: {a: b}", "want a mapping with apiVersion and kind"},
		{configMap + "kind: Secret", `"kind" already set`},
		{"\x7fELF\x02\x01\x01\x00", "not a Kubernetes object"},
		{configMap + "x: \xff", "not a Kubernetes object"},
		{bomb, "excessive aliasing"},
		{strings.Repeat("[", 20000), "exceeded max depth"},
		{strings.Repeat(`{"a":`, 20000), "exceeded max depth"},
		{"{apiVersion: v1, kind: List, items: [null, 3, {kind: A}]}", "items[2]: not a Kubernetes object"},
	} {
		_, err := Read("dir/file.yaml", strings.NewReader(configMap+"---\n"+test.text+"\n---\n"+"neither: this\n"))
		if err == nil || !strings.Contains(err.Error(), "dir/file.yaml: document 2: ") || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "dir/file.yaml: document 3: ") {
			t.Errorf("%.60q: %v\nwant %q of document 2, and document 3 too", test.text, err, test.want)
		}
	}
}

func TestATemplateIsOneErrorThatSaysWhatRendersIt(t *testing.T) {
	for _, text := range []string{
		"{{- if .Values.attacher }}\napiVersion: v1\nkind: ConfigMap\n{{- end }}\n---\n{{ include \"x\" . }}\n",
		configMap + "data:\n  a: {{ value }}\n---\nkind: {{ kind }}\n",
	} {
		objects, err := Read("file.yaml", strings.NewReader(text))
		if want := "file.yaml: is a template: render it first, for example with helm template RELEASE CHART -n NAMESPACE"; err == nil || err.Error() != want || len(objects) > 0 {
			t.Errorf("%v, %d objects; want %s", err, len(objects), want)
		}
	}
	if objects, err := Read("file.yaml", strings.NewReader(configMap+"data: {a: '{{ value }}'}\n")); err != nil || len(objects) != 1 {
		t.Errorf("a template in a text: %v", err)
	}
}

func TestTheChartOfADocumentIsThatOfItsComment(t *testing.T) {
	text := "---\n# Source: driver/charts/crds/templates/a.yaml\n" + configMap + "---\n" + configMap + "---\n# Source: `x`/templates/a.yaml\n" + configMap
	if o := read(t, text); o[0].Chart != "driver" || o[1].Chart != "" || o[2].Chart != "" {
		t.Errorf("%q, %q, %q", o[0].Chart, o[1].Chart, o[2].Chart)
	}
}

func TestErrorsDoNotShowTheContentOfASecret(t *testing.T) {
	for _, text := range []string{"topsecret", "- topsecret",
		strings.Replace(manifest, "args: [--driver-name=block.example.com]", "env: [{name: A, value: {topsecret: topsecret}}]", 1),
		strings.Replace(manifest, "args: [--driver-name=block.example.com]", "env: topsecret", 1)} {
		objects, err := Read("f", strings.NewReader(text))
		if err == nil {
			_, err = Find(objects, "default", plainFlags)
		}
		if err == nil || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%v", err)
		}
	}
}

func TestAManifestThatCannotBeUnderstoodIsNamedWithItsPath(t *testing.T) {
	for _, test := range []struct{ old, new, want string }{
		{"args: [--csi-address", "args: [5, --csi-address", "spec.template.spec.containers.args: want string, it is a number"},
		{"replicas: 1", "replicas: many", "spec.replicas: want int64, it is a string"},
		{"  template:", "  other:", "spec.template is missing"},
	} {
		_, err := Find(read(t, changed(t, test.old, test.new)), "default", plainFlags)
		if err == nil || !strings.HasPrefix(err.Error(), "file.yaml: document 1 (Deployment ") || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v\nwant %s", err, test.want)
		}
	}
}

// Whatever a file holds, it becomes plans or errors.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{manifest, configMap, strings.ReplaceAll(manifest, "\n", "\r\n"), "a: &a [*a]", "{apiVersion: v1, kind: List, items: [{apiVersion: apps/v1, kind: Deployment}]}",
		strings.Replace(manifest, "spec:\n      containers", "spec:\n      hostNetwork: true\n      containers", 1), `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"image":"csi-attacher"}]}}`,
		csiDriverNamed("a.example.com") + manifest, strings.Replace(manifest, "--driver-name", "--other", 1)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		objects, err := Read("f", strings.NewReader(text))
		if err != nil && err.Error() == "" {
			t.Error("an error without a text")
		}
		attachers, err := Find(objects, "default", plainFlags)
		for _, mode := range Modes {
			for _, p := range NewPlans(attachers, objects, Options{Mode: mode, Namespace: "default", Image: "hub"}) {
				if p.Adoptable() && (p.Socket.Path == "" || mode == ModeProxy && (p.Driver == "" || p.Port == 0)) {
					t.Errorf("adoptable without a name, a socket or a port: %s", fmt.Sprint(p))
				}
				for _, line := range append(append([]string{p.NameFrom, p.String()}, p.No...), p.Notes...) {
					if strings.ContainsAny(line, "\n\x1b") {
						t.Errorf("a text with control characters: %q", line)
					}
				}
			}
		}
		if err != nil && strings.Contains(err.Error(), "\x1b") {
			t.Errorf("an error with control characters: %q", err)
		}
	})
}
