package registry

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

// What Parse takes it takes again from a file that says the same in full; what it does not take, it explains. It never panics.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	valid, err := filepath.Glob("testdata/valid/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(append(files, valid...), exampleFile) {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("0: [:!00 \xef"))
	f.Add([]byte("\xff\xfea\x00:\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := Parse("f.yaml", data)
		if err != nil {
			checkErrors(t, data, err)
			return
		}
		again, err := Parse("f.yaml", render(t, config))
		if err != nil {
			t.Fatalf("what was taken is not taken again: %v", err)
		}
		if again.Defaults() != config.Defaults() {
			t.Errorf("the defaults are %+v, then %+v", config.Defaults(), again.Defaults())
		}
		if diff := cmp.Diff(discoveryInYAML(config.Discovery()), discoveryInYAML(again.Discovery())); diff != "" {
			t.Errorf("discovery differs the second time (-first +second):\n%s", diff)
		}
		if len(again.Drivers()) != len(config.Drivers()) {
			t.Fatalf("got %v, then %v", config.Drivers(), again.Drivers())
		}
		for name, want := range config.Drivers() {
			got := again.Drivers()[name]
			got.Source = want.Source
			if got != want {
				t.Errorf("got %+v, then %+v", want, got)
			}
		}
	})
}

// render writes a file that says everything about each driver, and about all others.
func render(t *testing.T, c *Config) []byte {
	t.Helper()
	list := []any{}
	for _, d := range c.Drivers() {
		entry := settingsInYAML(t, d.Settings)
		entry["name"], entry["endpoint"] = d.Name, string(d.Endpoint)
		if d.TLS.Enabled() {
			entry["tls"] = tlsInYAML(d.TLS)
		}
		list = append(list, entry)
	}
	defaults := settingsInYAML(t, c.Defaults())
	delete(defaults["lease"].(map[string]any), "name")
	data, err := yaml.Marshal(map[string]any{"apiVersion": apiVersion, "kind": configKind,
		"defaults": defaults, "discovery": discoveryInYAML(c.Discovery()), "drivers": list})
	must(t, err)
	return data
}

// settingsInYAML are all settings.
func settingsInYAML(t *testing.T, of Settings) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, s := range settings {
		var value any
		must(t, yaml.Unmarshal([]byte(s.write(&Driver{Settings: of})), &value))
		if group, key, nested := strings.Cut(s.key, "."); !nested {
			out[s.key] = value
		} else if inner, ok := out[group].(map[string]any); ok {
			inner[key] = value
		} else {
			out[group] = map[string]any{key: value}
		}
	}
	return out
}

func tlsInYAML(t TLS) map[string]any {
	out := map[string]any{"caFile": t.CAFile, "certFile": t.CertFile, "keyFile": t.KeyFile}
	if t.ServerName != "" {
		out["serverName"] = t.ServerName
	}
	return out
}

func discoveryInYAML(d Discovery) map[string]any {
	objects := map[string]any{"enabled": d.Enabled}
	if d.EndpointTemplate != "" {
		objects["endpointTemplate"] = d.EndpointTemplate
	}
	patterns := []any{}
	for _, p := range d.AllowedEndpoints {
		patterns = append(patterns, string(p))
	}
	objects["allowedEndpoints"] = patterns
	if d.TLS.Enabled() {
		objects["tls"] = tlsInYAML(d.TLS)
	}
	return map[string]any{"csiDrivers": objects}
}

func checkErrors(t *testing.T, data []byte, err error) {
	t.Helper()
	list, ok := errors.AsType[Errors](err)
	if !ok || len(list) == 0 {
		t.Fatalf("got %T %v, want Errors", err, err)
	}
	lines := 1
	for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} { // all that YAML knows
		lines += bytes.Count(data, []byte(end))
	}
	last := 0
	for _, e := range list {
		if e.Line < last || e.Line > lines {
			t.Errorf("line %d is out of order or beyond the end: %v", e.Line, e)
		}
		last = e.Line
		if e.Message == "" || strings.ContainsAny(e.Error(), "\n\r\x00") {
			t.Errorf("not one line: %q", e)
		}
	}
}
