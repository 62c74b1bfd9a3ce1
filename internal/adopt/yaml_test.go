package adopt

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// namesLikeOtherTypes are valid names that YAML 1.1 or 1.2 reads as numbers, truth values, dates or nothing.
var namesLikeOtherTypes = []string{"1234", "1e3", "0x1f", "0o17", "0b1", "017", "2001-01-01", "true", "null", "no", "on", "y", "e1"}

func TestNamesStayTextInEveryOutput(t *testing.T) {
	for _, name := range namesLikeOtherTypes {
		for _, mode := range []Mode{ModeProxy, ModeSidecarHub} {
			for _, network := range []string{"", "hostNetwork: true\n      "} {
				p := podWith(t, Options{Mode: mode, Secrets: []string{name + "/" + name}},
					"--leader-election, --leader-election-namespace="+name, "", network+fmt.Sprintf("serviceAccountName: %q", name))
				p.Workload.Namespace, p.Driver = name, name
				p = together([]Plan{p})[0]
				if err := Check([]Plan{p}); err != nil || !p.Adoptable() {
					t.Fatalf("%s: %v, no: %v", name, err, p.No)
				}
				ours, err := p.DriverObjects()
				hubs, err2 := p.HubObjects()
				if err != nil || err2 != nil {
					t.Fatal(err, err2)
				}
				for _, document := range bytes.Split(append(append(ours, "---\n"...), hubs...), []byte("---\n")) {
					var content any
					if err := yaml.UnmarshalStrict(document, &content); err != nil {
						t.Fatalf("%s: %v:\n%s", name, err, document)
					}
					for path, value := range leaves(content, "") {
						number := strings.Contains(strings.ToLower(path), "port") || strings.HasSuffix(path, "size") || strings.HasSuffix(path, "timeoutSeconds") || strings.HasSuffix(path, "isCA")
						if _, isText := value.(string); path != "" && !isText && !number { // a document can be empty
							t.Errorf("%s, %s: %s is %v:\n%s", mode, name, path, value, document)
						}
					}
				}
				file := string(DriversFile([]Plan{p}))
				if mode == ModeSidecarHub {
					file = driversHead + "drivers:\n" + p.Entry()
				}
				config, err := registry.Parse("drivers.yaml", []byte(file))
				if err != nil || config.Drivers()[name].Settings.Lease.Namespace != name {
					t.Errorf("%s: %v:\n%s", name, err, file)
				}
			}
		}
	}
}

// leaves returns the values in a document that are no mapping and no list, by their paths.
func leaves(content any, path string) map[string]any {
	all := map[string]any{}
	add := func(key string, value any) {
		for path, leaf := range leaves(value, path+"."+key) {
			all[path] = leaf
		}
	}
	switch content := content.(type) {
	case map[string]any:
		for key, value := range content {
			add(key, value)
		}
	case []any:
		for i, value := range content {
			add(fmt.Sprint(i), value)
		}
	default:
		all[path] = content
	}
	return all
}

func TestTextsThatCouldAddToAnOutputAreRefused(t *testing.T) {
	for _, hostile := range []string{"a\\n---\\nkind: ClusterRoleBinding", "a: b", "a #b", "a\\e[31m", "{a", "$(reboot)"} {
		for _, mode := range Modes {
			account := podWith(t, Options{Mode: mode}, "--csi-address=/run/csi/socket, --leader-election", "", `serviceAccountName: "`+hostile+`"`)
			socket := podWith(t, Options{Mode: mode}, `--leader-election, "--csi-address=/run/csi/`+hostile+`"`, "", "")
			for what, p := range map[string]Plan{"serviceAccountName": account, "socket of --csi-address": socket} {
				if err := Check([]Plan{p}); err == nil || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s, %s %q: %v", mode, what, hostile, err)
				}
			}
		}
	}
}
