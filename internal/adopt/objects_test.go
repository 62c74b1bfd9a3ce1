package adopt

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// namesLikeOtherTypes are valid names that YAML 1.1 or 1.2 reads as numbers, truth values, dates or nothing.
var namesLikeOtherTypes = []string{"1234", "1e3", "0x1f", "0o17", "0b1", "017", "2001-01-01", "true", "null", "no", "on", "y", "e1"}

func TestNamesStayTextInEveryOutput(t *testing.T) {
	for _, name := range namesLikeOtherTypes {
		for _, network := range []string{"", "hostNetwork: true"} {
			p := podWith(t, Options{Mode: ModeProxy, Secrets: []string{name + "/" + name}}, "--leader-election, --leader-election-namespace="+name, "", network)
			p.Workload.Namespace, p.Driver, p.Options.HubNamespace = name, name, name
			if !p.Adoptable() {
				t.Fatalf("%s: no: %v", name, p.No)
			}
			documents, err := execute("objects.yaml", folder{Plan: p, Plans: []Plan{p}})
			if err != nil {
				t.Fatal(err)
			}
			for document := range strings.SplitSeq(documents, "---\n") {
				var content any
				if err := yaml.UnmarshalStrict([]byte(document), &content); err != nil {
					t.Fatalf("%s: %v:\n%s", name, err, document)
				}
				for path, value := range leaves(content, "") {
					number := strings.Contains(strings.ToLower(path), "port") || strings.HasSuffix(path, "size") || strings.HasSuffix(path, "timeoutSeconds") || strings.HasSuffix(path, "isCA")
					if _, isText := value.(string); path != "" && !isText && !number {
						t.Errorf("%s: %s is %v:\n%s", name, path, value, document)
					}
				}
			}
			config, err := registry.ParseManifest("drivers.yaml", []byte(fileOf(t, p)))
			if err != nil || config[0].Drivers()[name].Settings.Lease.Namespace != name {
				t.Errorf("%s: %v:\n%s", name, err, fileOf(t, p))
			}
		}
	}
}

// fileOf returns the driver's file for the hub.
func fileOf(t *testing.T, p Plan) string {
	t.Helper()
	text, err := execute("driver.yaml", p)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// policyOf returns the network policy of drivers in one Pod, which must be the last of the objects.
func policyOf(t *testing.T, plans []Plan) (policy networkingv1.NetworkPolicy) {
	t.Helper()
	text, err := execute("objects.yaml", folder{Plan: plans[0], Plans: plans})
	documents := strings.Split(text, "---\n")
	if err = errors.Join(err, yaml.UnmarshalStrict([]byte(documents[len(documents)-1]), &policy)); err != nil {
		t.Fatal(err)
	}
	return policy
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
	for _, hostile := range []string{"a\\n---\\nkind: ClusterRoleBinding", "a: b", "a #b", "a\\e[31m", "{a", "$a"} {
		for _, mode := range Modes {
			p := podWith(t, Options{Mode: mode}, `--leader-election, "--csi-address=/run/csi/`+hostile+`"`, "", "")
			if len(p.No) != 1 || !strings.Contains(p.No[0], "socket of --csi-address") || strings.Contains(p.No[0], "\n") {
				t.Errorf("%s, %q: no: %v", mode, hostile, p.No)
			}
		}
	}
}

func TestAPolicyOpensNoPortThatAnotherPolicyCloses(t *testing.T) {
	policy := func(spec string) string {
		return "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: closed, namespace: storage}\nspec: " + spec
	}
	for name, tt := range map[string]struct {
		other string
		rules int
		note  string
	}{
		"no other":             {rules: 2, note: "pass its manifest as INPUT too, or ports that it closes are opened (kubectl -n storage get networkpolicy)"},
		"all Pods":             {other: policy("{podSelector: {}}"), rules: 1, note: "NetworkPolicy closed says what may connect"},
		"by an expression":     {other: policy("{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}, policyTypes: [Egress, Ingress]}"), rules: 1, note: "closed"},
		"another Pod":          {other: policy("{podSelector: {matchLabels: {app: other}}}"), rules: 2, note: "pass its manifest"},
		"Egress":               {other: policy("{podSelector: {}, policyTypes: [Egress]}"), rules: 2, note: "pass its manifest"},
		"another namespace":    {other: strings.Replace(policy("{podSelector: {}}"), "storage", "other", 1), rules: 2, note: "pass its manifest"},
		"made by adopt":        {other: strings.Replace(policy("{podSelector: {}}"), "closed", "attach-hub-a", 1), rules: 2, note: "pass its manifest"},
		"its selector is none": {other: policy("{podSelector: {matchExpressions: [{key: app, operator: Like}]}}"), rules: 1, note: "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			manifest := strings.NewReplacer("NAME", "driver", "ARGS", "--leader-election", "ATTACHER", "", "POD", "").Replace(onePod)
			p := plansOfText(t, []byte(manifest+tt.other), Options{Mode: ModeProxy})[0]
			if made := policyOf(t, []Plan{p}); len(made.Spec.Ingress) != tt.rules || len(made.Spec.Ingress[0].From) == 0 {
				t.Errorf("policy %+v, want %d rules", made, tt.rules)
			}
			if notes := strings.Join(p.Notes, "\n"); !strings.Contains(notes, tt.note) {
				t.Errorf("notes: %s", notes)
			}
		})
	}
}

// The hub may create a Lease only in its own namespace. It would wait forever for a Lease that nobody has made.
func TestEntryOfACsiAttacherWithoutLeaderElectionHasTheHubsLease(t *testing.T) {
	for manifest, takesLease := range map[string]bool{"ebs": true, "digitalocean": false} {
		p := plansFor(t, manifest, Options{Mode: ModeProxy})[0]
		file, err := registry.ParseManifest("drivers.yaml", []byte(strings.Replace(fileOf(t, p), "mode: observe", "mode: active", 1)))
		if got := strings.Contains(fileOf(t, p), "lease: {namespace: kube-system}"); got != takesLease || err != nil || len(file[0].Warnings()) > 0 {
			t.Errorf("%s: %v; the entry is %s", manifest, err, fileOf(t, p))
		}
	}
}
