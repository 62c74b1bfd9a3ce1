package registry

import (
	"maps"
	"slices"
	"testing"
)

const head = "apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\n"

// folder is the content of a folder, by name of the file.
type folder map[string]string

func (f folder) load(last *Config) *Config {
	var files []fileContent
	for _, path := range slices.Sorted(maps.Keys(f)) {
		_, err := isConfigFile(path)
		files = append(files, fileContent{path: path, data: []byte(f[path]), err: err})
	}
	c, _ := load(files, DefaultSettings(), last)
	return c
}

const (
	observed = head + "defaults:\n  mode: observe\ndrivers: []\n"
	driverX  = head + "drivers:\n- {name: x.example, endpoint: \"unix:///x\"}\n"
	driverY  = head + "drivers:\n- {name: x.example, endpoint: \"unix:///x\", tmeout: 5s}\n"
	nothing  = head + "drivers: []\n"
)

// A mistake in one file must neither end nor change the work for the drivers of the others.
func TestMistakeInAFileOfAFolderChangesNoOtherDriver(t *testing.T) {
	before := folder{"00.yaml": observed, "a.yaml": driverX, "b.yaml": nothing}
	for name, after := range map[string]folder{
		"the key defaults is misspelt":       {"00.yaml": head + "defalts:\n  mode: observe\ndrivers: []\n", "a.yaml": driverX, "b.yaml": nothing},
		"defaults in a second document":      {"00.yaml": nothing + "---\n" + observed, "a.yaml": driverX, "b.yaml": nothing},
		"defaults renamed to .yml":           {"00.yml": observed, "a.yaml": driverX, "b.yaml": nothing},
		"defaults renamed with a mistake":    {"01.yaml": observed + "x: 1\n", "a.yaml": driverX, "b.yaml": nothing},
		"the driver renamed to .yml":         {"00.yaml": observed, "a.yml": driverX, "b.yaml": nothing},
		"the driver renamed with a mistake":  {"00.yaml": observed, "c.yaml": driverY, "b.yaml": nothing},
		"the driver moved with a mistake":    {"00.yaml": observed, "a.yaml": nothing, "b.yaml": driverY},
		"the file of another driver is lost": {"00.yaml": observed, "a.yaml": driverX, "b.yaml": "{"},
	} {
		t.Run(name, func(t *testing.T) {
			last := before.load(nil)
			c := after.load(last)
			if d := c.drivers["x.example"]; d.Mode != ModeObserve || d.Endpoint != "unix:///x" {
				t.Errorf("after the mistake: %+v", d)
			}
			found := []Driver{{Name: "x.example", Source: csiDriverOrigin + "x.example", Endpoint: "unix:///csi/x"}, {Name: "new.example", Source: csiDriverOrigin + "new.example"}}
			if served, _ := merge(c, found, last.drivers); served["x.example"].Endpoint != "unix:///x" || len(served) != 1 {
				t.Errorf("with discovery: %+v", served)
			}
			if d := before.load(c).drivers["x.example"]; d.Mode != ModeObserve || d.Endpoint != "unix:///x" {
				t.Errorf("after the repair: %+v", d)
			}
		})
	}
}

func TestSecretsOfADriverAreItsOwnWhileItIsNotServed(t *testing.T) {
	c := folder{"a.yaml": head + "drivers:\n- {name: x.example, endpoint: \"unix:///x\", secrets: [team-x/*], tmeout: 3s}\n",
		"b.yaml": head + "drivers:\n- {name: b.example, endpoint: \"unix:///b\"}\n"}.load(nil)
	served, _ := merge(c, nil, nil)
	if err := served["b.example"].CheckSecret("team-x", "key"); err == nil || len(served) != 1 {
		t.Errorf("served %v; another driver may name the Secret: %v", served, err)
	}
}
