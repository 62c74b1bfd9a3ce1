package adopt

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Mode is how the hub takes the place of a csi-attacher.
type Mode string

const (
	ModeProxy      Mode = "proxy"       // the hub in its own Deployment, and a proxy beside the driver
	ModeDropIn     Mode = "drop-in"     // the hub's image in the csi-attacher container
	ModeSidecarHub Mode = "sidecar-hub" // the hub beside the driver in its Pod, with a drivers.yaml
)

// Modes are all modes, the default first.
var Modes = []Mode{ModeProxy, ModeDropIn, ModeSidecarHub}

// Step is a state of the driver's manifest on its way.
type Step string

const (
	StepObserve Step = "observe" // the proxy is there, and csi-attacher works
	StepActive  Step = "active"  // csi-attacher is removed
)

// Steps returns the steps of a mode in their order. In place of a csi-attacher there is nothing to observe.
func (m Mode) Steps() []Step {
	if m == ModeDropIn {
		return []Step{StepActive}
	}
	return []Step{StepObserve, StepActive}
}

// Options are what the manifests do not say.
type Options struct {
	Mode      Mode
	Image     string   // of the hub, with its registry and tag or digest
	Namespace string   // of objects without metadata.namespace
	Drivers   []string // names that the user gives: of the only csi-attacher, or CONTAINER=NAME
	Port      int32    // of the proxy, and the next one for its health; 0: chosen
	NodeCIDRs []string // addresses of nodes, for proxies on the host network; empty: all addresses
	Secrets   []string // Secrets that attaching needs: NAME, or NAMESPACE/NAME
	RunAsUser *int64   // user of the proxy, if the manifest does not say it
	OpenShift bool     // users are chosen by the cluster's security context constraints
	// WithoutLeaderElection allows a csi-attacher that takes no Lease: the order of the steps alone keeps it apart
	// from the hub.
	WithoutLeaderElection bool
}

// Plan is how one driver moves to the hub, or why it cannot. It is a value: nothing changes it after NewPlans.
type Plan struct {
	Attacher
	Options Options
	Driver  string // "" if it is not known
	// NameFrom is what says the driver's name, for the user to check: an argument, a variable, an object or --driver.
	NameFrom string
	Ports    Ports
	// podPorts are the ports of all proxies in the Pod.
	podPorts []Ports
	Secrets  []SecretName
	No       []string // why the driver cannot be adopted in this mode; empty if it can
	Notes    []string // what the user must know, decide or look up
}

// SecretName names a Secret that PersistentVolumes of the driver name in controllerPublishSecretRef.
type SecretName struct{ Namespace, Name string }

// Adoptable reports whether the driver can be adopted.
func (p Plan) Adoptable() bool { return len(p.No) == 0 }

// Base is the name of the objects on the driver's side.
func (p Plan) Base() string { return Base(p.Driver) }

// HostNetwork reports whether the driver's Pod has the node's network.
func (p Plan) HostNetwork() bool { return p.Workload.Template.Spec.HostNetwork }

// LeaseNamespace returns the namespace of csi-attacher's Lease.
func (p Plan) LeaseNamespace() string { return cmp.Or(p.Flags.LeaseNamespace, p.Workload.Namespace) }

// LeaseWait returns how long the hub waits for the Lease of a csi-attacher that has ended.
func (p Plan) LeaseWait() time.Duration { return cmp.Or(p.Flags.LeaseDuration, 15*time.Second) }

// user returns as whom the proxy runs.
func (p Plan) user() User {
	u := p.User
	if u.UID == nil && p.Options.RunAsUser != nil {
		u.UID = p.Options.RunAsUser
	}
	return u
}

// NewPlans decides how each driver moves. objects are those of the input: they may say more, such as the names of
// drivers. The plans are in the order of the attachers.
func NewPlans(attachers []Attacher, objects []Object, o Options) []Plan {
	plans := make([]Plan, len(attachers))
	inPod := map[*Workload]int{}
	taken := map[int32]string{}
	for i, a := range attachers {
		p := Plan{Attacher: a, Options: o}
		p.Driver = driverName(a, attachers, objects, o)
		p.Ports = p.choosePorts(inPod[a.Workload], taken)
		inPod[a.Workload]++
		p.Secrets = secretNames(p, objects)
		p.No, p.Notes = verdict(p, objects)
		plans[i] = p
	}
	for i := range plans { // the policy of each proxy must close the ports of all: policies add up
		for _, other := range plans {
			if other.Workload == plans[i].Workload {
				plans[i].podPorts = append(plans[i].podPorts, other.Ports)
			}
		}
	}
	return plans
}

// choosePorts returns the ports of the nth proxy of a Pod. taken has the ports of the node's network that other
// drivers of this run have.
func (p Plan) choosePorts(n int, taken map[int32]string) Ports {
	if p.Options.Port > 0 {
		first := p.Options.Port + int32(2*n)
		return Ports{Listen: first, Health: first + 1}
	}
	used := map[int32]bool{}
	for _, c := range p.Workload.containers() {
		for _, port := range c.Ports {
			used[port.ContainerPort] = true
		}
	}
	if !p.HostNetwork() {
		ports := podPorts(n)
		for used[ports.Listen] || used[ports.Health] {
			ports.Listen, ports.Health = ports.Listen+10, ports.Health+10
		}
		return ports
	}
	ports := hostPorts(p.Driver)
	for used[ports.Listen] || used[ports.Health] || taken[ports.Listen] != "" {
		ports.Listen = 19000 + (ports.Listen-19000+2)%1000
		ports.Health = ports.Listen + 1
	}
	taken[ports.Listen] = p.Driver
	return ports
}

// hasDriver reports whether a container of the Pod, besides csi-attacher, mounts the socket's volume: then the driver
// is in this Pod.
func (p Plan) hasDriver() bool {
	for _, c := range p.Workload.Template.Spec.Containers {
		if c.Name != p.Container.Name && !isSidecar(c) && mounts(c, p.Socket.Volume.Name) {
			return true
		}
	}
	return false
}

func mounts(c corev1.Container, volume string) bool {
	for _, m := range c.VolumeMounts {
		if m.Name == volume {
			return true
		}
	}
	return false
}

// endpoint is where the hub reaches the driver.
func (p Plan) endpoint() string {
	return fmt.Sprintf("tcp://%s.%s.svc:%d", p.Base(), p.Workload.Namespace, p.Ports.Listen)
}
