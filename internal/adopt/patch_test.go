package adopt

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

func TestAStepChangesOnlyWhatItIsAbout(t *testing.T) {
	for _, mode := range Modes {
		for _, manifest := range manifestNames(t) {
			plans := plansFor(t, manifest, Options{Mode: mode})
			for _, group := range byWorkload(plans) {
				for _, step := range mode.Steps() {
					after := templateAfter(t, group, step)
					ours := map[string]bool{}
					for _, p := range group {
						_, kept := containerNamed(after, p.Container.Name)
						_, added := containerNamed(after, p.Base())
						ours[p.Base()], ours[p.Container.Name] = true, true
						switch {
						case mode != ModeDropIn && kept != (step == StepObserve):
							t.Errorf("%s, %s, %s: csi-attacher is there: %v", manifest, mode, step, kept)
						case mode == ModeProxy != added:
							t.Errorf("%s, %s, %s: a container of ours was added: %v", manifest, mode, step, added)
						}
					}
					for _, c := range slices.Concat(group[0].Workload.Template.Spec.Containers, group[0].Workload.Template.Spec.InitContainers) {
						if now, _ := containerNamed(after, c.Name); !ours[c.Name] && !reflect.DeepEqual(now, c) {
							t.Errorf("%s, %s, %s: container %s has changed", manifest, mode, step, c.Name)
						}
					}
				}
			}
		}
	}
}

func TestPortsNeverCollide(t *testing.T) {
	for _, port := range []int32{0, 9443} {
		onNodes := map[int32]string{}
		for _, manifest := range manifestNames(t) {
			inPod := map[*Workload]map[int32]bool{}
			for _, p := range plansFor(t, manifest, Options{Mode: ModeProxy, Port: port}) {
				if inPod[p.Workload] == nil {
					inPod[p.Workload] = map[int32]bool{}
					if port == 0 {
						inPod[p.Workload] = p.Workload.usedPorts()
					}
				}
				for _, number := range []int32{p.Ports.Listen, p.Ports.Health} {
					if inPod[p.Workload][number] || number < 1024 || number > 29999 {
						t.Errorf("%s: %s has port %d, which is used or cannot be", manifest, p.Driver, number)
					}
					inPod[p.Workload][number] = true
					if other := onNodes[number]; p.HostNetwork() && port == 0 && other != "" && other != p.Driver {
						t.Errorf("on nodes %s and %s have port %d", other, p.Driver, number)
					}
					if p.HostNetwork() {
						onNodes[number] = p.Driver
					}
				}
			}
		}
	}
}

func TestPortsOfArgumentsAndOfOtherDriversAreAvoided(t *testing.T) {
	p := podWith(t, Options{Mode: ModeProxy}, "--leader-election", "", "")
	if p.Ports != (Ports{9453, 9819}) {
		t.Errorf("got %v beside a driver that listens on 9443", p.Ports)
	}
	var documents []string
	for _, name := range []string{"a", "b"} {
		documents = append(documents, strings.NewReplacer("NAME", name, "ARGS", "", "ATTACHER", "", "POD", "hostNetwork: true").Replace(onePod))
	}
	for _, port := range []int32{0, 19000} {
		plans := plansOfText(t, []byte(strings.Join(documents, "---")), Options{Mode: ModeProxy, Port: port}) // of one name, so of one number
		if a, b := plans[0].Ports, plans[1].Ports; b.Listen != a.Listen+2 || a.Health != a.Listen+1 {
			t.Errorf("two drivers on the nodes have ports %v and %v", a, b)
		}
	}
}

func TestPoliciesLeaveNoPortOfAProxyOpenToEverybody(t *testing.T) {
	for _, manifest := range manifestNames(t) {
		plans := plansFor(t, manifest, Options{Mode: ModeProxy})
		for _, p := range plans {
			if p.HostNetwork() {
				continue
			}
			text, err := execute("networkpolicy.yaml", p)
			if err != nil {
				t.Fatal(err)
			}
			var policy networkingv1.NetworkPolicy
			if err := yaml.UnmarshalStrict([]byte(text), &policy); err != nil {
				t.Fatal(err)
			}
			open := map[int32]bool{}
			for _, rule := range policy.Spec.Ingress {
				for _, ports := range rule.Ports {
					last := ports.Port.IntVal
					if ports.EndPort != nil {
						last = *ports.EndPort
					}
					for n := ports.Port.IntVal; len(rule.From) == 0 && *ports.Protocol == corev1.ProtocolTCP && n <= last; n++ {
						open[n] = true
					}
				}
			}
			for _, other := range plans {
				if samePod := other.Workload == p.Workload; samePod && (open[other.Ports.Listen] || open[other.Ports.Health]) {
					t.Errorf("%s: the policy of %s leaves ports of %s open: %v", manifest, p.Driver, other.Driver, other.Ports)
				}
			}
			if !open[1] || !open[65535] || !open[9442] {
				t.Errorf("%s: the policy of %s closes ports of the driver", manifest, p.Driver)
			}
		}
	}
}

func TestPortsThatTheManifestShowsAreAvoided(t *testing.T) {
	for shown, want := range map[string]int32{
		"":                                    9443,
		"args: [--bind=0.0.0.0:9443]":         9453,
		`args: ["https://0.0.0.0:9443/hook"]`: 9453,
		`args: ["--ports=9443,9453"]`:         9463,
		`env: [{name: PORTS, value: "8080 9819"}]`:    9443,
		`env: [{name: PORTS, value: "8080 9809"}]`:    9453,
		"livenessProbe: {tcpSocket: {port: 9443}}":    9453,
		"startupProbe: {grpc: {port: 9443}}":          9453,
		"readinessProbe: {httpGet: {port: 9443}}":     9453,
		"args: [--image=driver:v1.9443x, --id=19443]": 9443,
	} {
		text := strings.Replace(onePod, `args: [--port=9443, "--health=:9463"]`, shown, 1)
		text = strings.NewReplacer("NAME", "driver", "ARGS", "--leader-election", "ATTACHER", "", "POD", "").Replace(text)
		if p := plansOfText(t, []byte(text), Options{Mode: ModeProxy})[0]; p.Ports.Listen != want {
			t.Errorf("%q: port %d, want %d", shown, p.Ports.Listen, want)
		}
	}
}
