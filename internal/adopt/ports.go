package adopt

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"regexp"
	"strconv"
)

// choosePorts returns the ports of the nth driver of a Pod. taken are the ports that drivers of this run have on the
// same network; those that are chosen are added. It returns no ports if none are free.
func (p Plan) choosePorts(n int, taken map[int32]bool) Ports {
	used, ports := p.Workload.usedPorts(), podPorts(n)
	next := func(x Ports) Ports { return Ports{Listen: x.Listen + 10, Health: x.Health + 10} }
	switch {
	case p.Options.Port > 0: // the user knows what else is there
		used, ports = nil, Ports{Listen: p.Options.Port, Health: p.Options.Port + 1}
		next = func(x Ports) Ports { return Ports{Listen: x.Listen + 2, Health: x.Health + 2} }
	case p.HostNetwork():
		ports = hostPorts(p.Driver)
		next = func(x Ports) Ports {
			first := 19000 + (x.Listen-19000+2)%1000
			return Ports{Listen: first, Health: first + 1}
		}
	}
	for try := 0; used[ports.Listen] || used[ports.Health] || taken[ports.Listen] || taken[ports.Health]; try++ {
		if ports = next(ports); try > 500 || ports.Health > 65535 {
			return Ports{}
		}
	}
	taken[ports.Listen], taken[ports.Health] = true, true
	return ports
}

// number is what can be a port in an argument or variable: ":8080", "--port=8080", "https://0.0.0.0:9443/hook", "9443,9809".
var number = regexp.MustCompile(`\b\d{2,5}\b`)

// usedPorts returns all numbers that may be ports of the Pod's containers: many containers listen on ports of their
// arguments that the manifest does not list.
func (w *Workload) usedPorts() map[int32]bool {
	used := map[int32]bool{}
	for _, c := range w.containers() {
		text, _ := json.Marshal(c) // a container that has been decoded
		for _, digits := range number.FindAllString(string(text), -1) {
			port, _ := strconv.ParseInt(digits, 10, 32)
			used[int32(port)] = true
		}
	}
	return used
}

// Ports are those of a proxy.
type Ports struct{ Listen, Health int32 }

// podPorts returns the ports of the nth proxy of a Pod that has a network of its own.
func podPorts(n int) Ports { return Ports{Listen: int32(9443 + n), Health: int32(9809 + n)} }

// hostPorts returns ports on the node's network. They depend on the driver alone, so that they stay the same when
// another driver is adopted. They are below the ports that Kubernetes and Linux choose from by themselves (30000
// and above).
func hostPorts(driver string) Ports {
	h := fnv.New32a()
	h.Write([]byte(driver))
	first := int32(19000 + 2*(h.Sum32()%500))
	return Ports{Listen: first, Health: first + 1}
}

// hostPorts returns the ports that the Pods of the input use on the network of nodes.
func (in input) hostPorts() map[int32]bool {
	used := map[int32]bool{}
	for _, w := range in.workloads {
		if w.Template.Spec.HostNetwork {
			maps.Copy(used, w.usedPorts())
		}
	}
	return used
}
