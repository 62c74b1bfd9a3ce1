package adopt

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
						inPod[p.Workload] = input{workloads: []*Workload{p.Workload}}.usedPorts(p.Workload)
					}
				}
				for _, number := range []int32{p.Port, p.Health()} {
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

func TestPoliciesLeaveNoPortOfAProxyOpenToEverybody(t *testing.T) {
	for _, manifest := range manifestNames(t) {
		for w, plans := range byWorkload(plansFor(t, manifest, Options{Mode: ModeProxy})) {
			if w.Template.Spec.HostNetwork {
				continue
			}
			open := map[int32]bool{}
			policy := policyOf(t, plans)
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
			if len(policy.Spec.Ingress[0].Ports) != len(plans) {
				t.Errorf("%s: the hub reaches %d of %d proxies", manifest, len(policy.Spec.Ingress[0].Ports), len(plans))
			}
			for _, p := range plans {
				if open[p.Port] || open[p.Health()] {
					t.Errorf("%s: ports of %s are open: %v", manifest, p.Driver, p.Port)
				}
			}
			if !open[1] || !open[65535] || !open[9442] {
				t.Errorf("%s: the policy closes ports of the driver", manifest)
			}
		}
	}
}

func TestPortsThatTheManifestShowsAreAvoided(t *testing.T) {
	for shown, want := range map[string]int32{
		"":                                    9443,
		"args: [--bind=0.0.0.0:9443]":         9445,
		`args: ["https://0.0.0.0:9443/hook"]`: 9445,
		`args: ["--ports=9443,9445"]`:         9447,
		`env: [{name: PORTS, value: "8080 9446"}]`:    9443,
		`env: [{name: PORTS, value: "8080 9444"}]`:    9445,
		"livenessProbe: {tcpSocket: {port: 9443}}":    9445,
		"startupProbe: {grpc: {port: 9443}}":          9445,
		"readinessProbe: {httpGet: {port: 9443}}":     9445,
		"args: [--image=driver:v1.9443x, --id=19443]": 9443,
	} {
		text := strings.Replace(onePod, `args: [--port=9443, "--health=:9463"]`, shown, 1)
		text = strings.NewReplacer("NAME", "driver", "ARGS", "--leader-election", "ATTACHER", "", "POD", "").Replace(text)
		if p := plansOfText(t, []byte(text), Options{Mode: ModeProxy})[0]; p.Port != want {
			t.Errorf("%q: port %d, want %d", shown, p.Port, want)
		}
	}
}
