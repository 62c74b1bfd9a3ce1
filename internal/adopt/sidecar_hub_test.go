package adopt

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// objectsOf returns the objects of a kind that plans need beside their workloads.
func objectsOf[T any](t *testing.T, plans []Plan, kind string) []T {
	t.Helper()
	var all []T
	for _, p := range plans {
		text, err := p.DriverObjects()
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(text, []byte("---\n")) {
			if !bytes.Contains(document, []byte("\nkind: "+kind+"\n")) {
				continue
			}
			var object T
			if err := yaml.UnmarshalStrict(document, &object); err != nil {
				t.Fatalf("%v:\n%s", err, document)
			}
			all = append(all, object)
		}
	}
	return all
}

func TestTheHubOfAPodServesAllDriversOfThePod(t *testing.T) {
	plans := plansFor(t, "alibaba", Options{Mode: ModeSidecarHub})
	configMaps := objectsOf[corev1.ConfigMap](t, plans, "ConfigMap")
	if len(configMaps) != 2 {
		t.Fatalf("%d ConfigMaps", len(configMaps))
	}
	for step, mode := range map[Step]registry.Mode{StepObserve: registry.ModeObserve, StepActive: registry.ModeActive} {
		template := templateAfter(t, plans, step)
		hubs := slices.DeleteFunc(slices.Clone(template.Spec.Containers), func(c corev1.Container) bool { return !strings.HasPrefix(c.Name, "attach-hub-") })
		if len(hubs) != 1 {
			t.Fatalf("%s: %d hubs", step, len(hubs))
		}
		volume := template.Spec.Volumes[slices.IndexFunc(template.Spec.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil })]
		i := slices.IndexFunc(configMaps, func(c corev1.ConfigMap) bool { return c.Name == volume.ConfigMap.Name })
		if i < 0 {
			t.Fatalf("%s: no ConfigMap %s", step, volume.ConfigMap.Name)
		}
		config, err := registry.Parse("drivers.yaml", []byte(configMaps[i].Data["drivers.yaml"]))
		if err != nil {
			t.Fatal(err)
		}
		if len(config.Drivers()) != len(plans) {
			t.Errorf("%s: drivers %v", step, config.Drivers())
		}
		for _, p := range plans {
			d := config.Drivers()[p.Driver]
			folder := strings.TrimSuffix(strings.TrimPrefix(string(d.Endpoint), "unix://"), "/csi.sock")
			mounted := slices.ContainsFunc(hubs[0].VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.MountPath == folder && m.Name == p.Socket.Volume.Name
			})
			if d.Settings.Mode != mode || !mounted {
				t.Errorf("%s: driver %s has mode %s and endpoint %s, mounts %v", step, p.Driver, d.Settings.Mode, d.Endpoint, hubs[0].VolumeMounts)
			}
		}
	}
}

func TestTheHubOfAPodHasAllRightsThatAHubNeeds(t *testing.T) {
	for _, podSpec := range []string{"serviceAccountName: driver", "hostNetwork: true"} {
		for _, args := range []string{"--leader-election", "--leader-election, --leader-election-namespace=elsewhere"} {
			p := podWith(t, Options{Mode: ModeSidecarHub}, args, "", podSpec)
			needed := rights.Needed(rights.Features{Leases: []rights.Lease{{Namespace: p.LeaseNamespace(), Name: registry.LeaseName(p.Driver)}},
				ReplicaNamespace: "storage"})
			for _, r := range needed {
				var rules []rbacv1.PolicyRule
				if r.Namespace == "" {
					for _, role := range objectsOf[rbacv1.ClusterRole](t, []Plan{p}, "ClusterRole") {
						rules = append(rules, role.Rules...)
					}
				}
				for _, role := range objectsOf[rbacv1.Role](t, []Plan{p}, "Role") {
					if role.Namespace == r.Namespace {
						rules = append(rules, role.Rules...)
					}
				}
				resource := strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
				if !slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
					return rule.APIGroups[0] == r.Group && slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, r.Verb) &&
						(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.Name))
				}) {
					t.Errorf("%s, %s: the right to %s is missing", podSpec, args, r)
				}
			}
			account := rbacv1.Subject{Kind: "ServiceAccount", Name: "default", Namespace: "storage"}
			if strings.Contains(podSpec, "serviceAccountName") {
				account.Name = "driver"
			}
			for _, binding := range objectsOf[rbacv1.RoleBinding](t, []Plan{p}, "RoleBinding") {
				if !slices.Equal(binding.Subjects, []rbacv1.Subject{account}) {
					t.Errorf("%s is for %v", binding.Name, binding.Subjects)
				}
			}
		}
	}
}

func TestAHubBesideACSIAttacherWithoutALeaseIsRefused(t *testing.T) {
	for _, o := range []Options{{Mode: ModeSidecarHub}, {Mode: ModeSidecarHub, WithoutLeaderElection: true}} {
		if p := podWith(t, o, "", "", ""); p.Adoptable() {
			t.Errorf("%+v: it can be adopted", o)
		}
	}
}

func TestCertificatesOfTheUserNeedNoCertManager(t *testing.T) {
	p := podWith(t, Options{Mode: ModeProxy, Certificates: CertExisting}, "--leader-election", "", "")
	text, err := p.DriverObjects()
	if err != nil || bytes.Contains(text, []byte("cert-manager")) || !bytes.Contains(text, []byte("kind: Service\n")) {
		t.Errorf("%v\n%s", err, text)
	}
	if want := "Secret " + p.Base() + "-tls in namespace storage"; !strings.Contains(strings.Join(p.Notes, "\n"), want) {
		t.Errorf("%q is not in %v", want, p.Notes)
	}
}

// With automountServiceAccountToken: false csi-attacher often mounts a projected token.
func TestTheHubOfAPodHasTheTokenOfCSIAttacher(t *testing.T) {
	const off = "automountServiceAccountToken: false"
	token := corev1.VolumeMount{Name: "token", MountPath: tokenFolder, ReadOnly: true}
	for podSpec, tt := range map[string]struct{ mounted, adoptable bool }{"": {false, true}, off: {false, false}, off + " # with a token": {true, true}} {
		text := onePod
		if tt.mounted {
			text = strings.Replace(text, "{name: socket, mountPath: /run/csi}", "{name: socket, mountPath: /run/csi}, {name: token, readOnly: true, mountPath: "+tokenFolder+"}", 1)
		}
		text = strings.NewReplacer("NAME", "driver", "ARGS", "--leader-election", "ATTACHER", "", "POD", podSpec).Replace(text)
		p := plansOfText(t, []byte(text), Options{Mode: ModeSidecarHub})[0]
		if p.Adoptable() != tt.adoptable {
			t.Errorf("%q: no: %v", podSpec, p.No)
		}
		for _, step := range ModeSidecarHub.Steps() {
			if c, _ := containerNamed(templateAfter(t, []Plan{p}, step), p.Base()); slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return reflect.DeepEqual(m, token) }) != tt.mounted {
				t.Errorf("%q, %s: mounts %v", podSpec, step, c.VolumeMounts)
			}
		}
	}
}
