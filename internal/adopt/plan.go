package adopt

import (
	"cmp"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
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

// Plan is how one driver moves to the hub, or why it cannot. It is a value: nothing changes it after NewPlans.
type Plan struct {
	Attacher
	Options Options
	Driver  string // "" if it is not known
	// NameFrom is what says the driver's name, for the user to check: an argument, a variable, an object or --driver.
	NameFrom string
	Ports    Ports
	// deployer is the container of Workload that makes the Deployment of csi-attacher; "" if csi-attacher is in Workload.
	deployer string
	// made is csi-attacher as kubectl names it, with its container, if a deployer makes it.
	made struct{ reference, container string }
	// imageVariable is the variable of deployer with the image of csi-attacher.
	imageVariable string
	// pod are the plans of all drivers of the Pod that can be adopted, without their pod.
	pod []Plan
	// policies are other network policies for what may connect to the Pod.
	policies []string
	Secrets  []SecretName
	No       []string // why the driver cannot be adopted in this mode; empty if it can
	Notes    []string // what the user must know, decide or look up
}

// SecretName names a Secret that PersistentVolumes of the driver name in controllerPublishSecretRef.
type SecretName struct{ Namespace, Name string }

// Adoptable reports whether the driver can be adopted.
func (p Plan) Adoptable() bool { return len(p.No) == 0 }

// attacherUnknown reports whether the container of csi-attacher is not in the input: another workload makes it. Its
// socket, user, replicas, network and Lease are not known then.
func (p Plan) attacherUnknown() bool { return p.Path == "" }

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
	u.Assigned = p.Options.OpenShift
	if u.UID == nil && p.Options.RunAsUser != nil {
		u.UID = p.Options.RunAsUser
	}
	return u
}

// NewPlans decides how each driver moves. objects are those of the input: they may say more, such as the names of
// drivers. The plans are in the order of the attachers.
func NewPlans(attachers []Attacher, objects []Object, o Options) []Plan {
	in := newInput(objects, o.Namespace)
	plans := make([]Plan, len(attachers))
	inPod := map[*Workload]int{}
	taken := map[*Workload]map[int32]bool{nil: in.hostPorts()} // by the Pod that has a network of its own; nil for the nodes
	for i, a := range attachers {
		p := Plan{Attacher: a, Options: o}
		var possible named
		p.Driver, p.NameFrom, possible = in.driverName(a, attachers, o)
		p.NameFrom = terminal.Line(p.NameFrom)
		network := a.Workload
		if p.HostNetwork() {
			network = nil
		}
		if taken[network] == nil {
			taken[network] = map[int32]bool{}
		}
		p.Ports = p.choosePorts(inPod[a.Workload], taken[network])
		inPod[a.Workload]++
		p.policies = in.policies(a.Workload)
		var unnamed []string
		p.Secrets, unnamed = in.secrets(p)
		if p.No = lines(in.verdict(p, possible)); p.Adoptable() {
			p.Notes = lines(append(in.notes(p), unnamed...))
		}
		if p = p.decideWay(in); !p.Adoptable() {
			p.Notes = nil
		}
		plans[i] = p
	}
	return together(plans)
}

// together tells the plans of one Pod of each other: its drivers share a hub, and the policy of each proxy must close
// the ports of all.
func together(plans []Plan) []Plan {
	for i := range plans {
		plans[i].pod = nil
		for _, other := range plans {
			if other.Workload == plans[i].Workload && other.Adoptable() {
				other.pod = nil
				plans[i].pod = append(plans[i].pod, other)
			}
		}
	}
	return plans
}

// lines makes texts that have parts of manifests safe to print.
func lines(texts []string) []string {
	for i := range texts {
		texts[i] = terminal.Line(texts[i])
	}
	return texts
}
