package adopt

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Mode is how the hub takes the place of a csi-attacher.
type Mode string

const (
	ModeProxy  Mode = "proxy"   // the hub in its own Deployment, and a proxy beside the driver
	ModeDropIn Mode = "drop-in" // the hub's image in the csi-attacher container
)

// Modes are all modes, the default first.
var Modes = []Mode{ModeProxy, ModeDropIn}

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
	Image     string // of the proxy, or of the hub in mode drop-in, with its registry and tag or digest
	Namespace string // of objects without metadata.namespace
	// HubNamespace is where the hub of mode proxy is; "" is DefaultHubNamespace.
	HubNamespace string
	Drivers      []string // names that the user gives: of the only csi-attacher, CONTAINER=NAME or WORKLOAD/CONTAINER=NAME
	Port         int32    // of the proxy, and the next one for its health; 0: chosen
	Secrets      []string // Secrets that attaching needs: NAME, NAMESPACE/NAME or NAMESPACE/*
	RunAsUser    *int64   // user of the proxy, if the manifest does not say it
	OpenShift    bool     // users are chosen by the cluster's security context constraints
	// Certificates says who makes those of the proxy; "" is CertManager.
	Certificates Certificates
}

// Plan is how one driver moves to the hub, or why it cannot. It is a value: nothing changes it after NewPlans.
type Plan struct {
	Attacher
	Options  Options
	Driver   string // "" if it is not known
	NameFrom string // what says the driver's name, for the user to check
	Ports    Ports
	Secrets  []SecretName
	No       []string // why the driver cannot be adopted in this mode; empty if it can
	Notes    []string // what the user must know, decide or look up
	pod      []Plan   // the plans of all drivers of the Pod that can be adopted, without their pod
	policies []string // other network policies for what may connect to the Pod
}

// Adoptable reports whether the driver can be adopted.
func (p Plan) Adoptable() bool { return len(p.No) == 0 }

// Base is the name of the objects on the driver's side.
func (p Plan) Base() string { return Base(p.Driver) }

// HostNetwork reports whether the driver's Pod has the node's network.
func (p Plan) HostNetwork() bool { return p.Workload.Template.Spec.HostNetwork }

// HubNamespace returns the namespace of the hub that has its own Deployment.
func (p Plan) HubNamespace() string { return cmp.Or(p.Options.HubNamespace, DefaultHubNamespace) }

// LeaseNamespace returns the namespace of csi-attacher's Lease.
func (p Plan) LeaseNamespace() string { return cmp.Or(p.Flags.LeaseNamespace, p.Workload.Namespace) }

// LeaseWait returns how long the hub waits for the Lease of a csi-attacher that has ended.
func (p Plan) LeaseWait() time.Duration { return cmp.Or(p.Flags.LeaseDuration, 15*time.Second) }

// user returns as whom the proxy runs.
func (p Plan) user() User {
	u := p.User
	u.Assigned = p.Options.OpenShift
	if u.UID == nil {
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
		if p.reasons(in, possible); p.Adoptable() {
			p.notes(in)
			p.Notes = append(p.Notes, unnamed...)
		}
		plans[i] = p
	}
	return together(plans)
}

// together tells the plans of one Pod of each other: the policy of each proxy must close the ports of all.
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

// Check returns an error with every option that cannot be followed for these attachers.
func (o Options) Check(attachers []Attacher) error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if !slices.Contains(Modes, o.Mode) {
		problem("--mode %q: write proxy or drop-in", string(o.Mode))
	}
	if !slices.Contains(AllCertificates, cmp.Or(o.Certificates, CertManager)) {
		problem("--certificates %q: write cert-manager or existing", string(o.Certificates))
	}
	for _, namespace := range []string{o.Namespace, cmp.Or(o.HubNamespace, DefaultHubNamespace)} {
		if reasons := validation.IsDNS1123Label(namespace); len(reasons) > 0 {
			problem("--namespace or --hub-namespace %q: %s", namespace, reasons[0])
		}
	}
	if o.Image == "" || strings.ContainsFunc(o.Image, func(r rune) bool { return r <= ' ' || r > '~' }) {
		problem("--image %q: write the image with its registry and tag or digest", o.Image)
	}
	if o.Port < 0 || o.Port > 65534 {
		problem("--port %d: write a number from 1 to 65534: the next port is for the health of the proxy", o.Port)
	}
	for _, secret := range o.Secrets {
		if !validSecret(splitSecret(secret, "default")) {
			problem("--secret %q: write NAME, NAMESPACE/NAME or NAMESPACE/*", secret)
		}
	}
	if o.RunAsUser != nil && *o.RunAsUser < 0 {
		problem("--run-as-user %d: write a user ID from 0", *o.RunAsUser)
	}
	for _, given := range o.Drivers {
		who, name, named := strings.Cut(given, "=")
		if !named {
			name = who
		}
		if err := registry.CheckName(name); err != nil {
			problem("--driver: %w", err)
		}
		var have []string
		meant := 0
		for _, a := range attachers {
			have = append(have, a.Workload.GetName()+"/"+a.Container.Name)
			if !named || a.is(who) {
				meant++
			}
		}
		if meant != 1 {
			problem("--driver %q means %d csi-attachers: write WORKLOAD/CONTAINER=NAME with one of %s", given, meant, strings.Join(have, ", "))
		}
	}
	return errors.Join(problems...)
}

// CheckTogether returns an error if plans cannot be carried out side by side: with every two that have one driver name,
// or names that are the same in Leases and finalizers, and for several workloads of which one has a csi-attacher without
// a Lease. The way back of one workload would bring that csi-attacher back while the hub is active for its driver.
func CheckTogether(plans []Plan) error {
	var problems []error
	for i, p := range plans {
		for _, first := range plans[:i] {
			if p.Driver != "" && first.Driver != "" && registry.LeaseName(p.Driver) == registry.LeaseName(first.Driver) {
				problems = append(problems, fmt.Errorf("%s and %s are for drivers %s and %s, which have one Lease and one finalizer: pass the manifests of one of them, or name the drivers with --driver",
					first.Attacher, p.Attacher, first.Driver, p.Driver))
				break
			}
		}
	}
	groups := byWorkload(plans)
	for _, p := range slices.Concat(groups...) {
		if len(groups) > 1 && p.withoutLease() {
			problems = append(problems, fmt.Errorf("%s runs without --leader-election, and %d workloads have a csi-attacher: adopt each workload in a run of its own, because the way back of one would bring the other csi-attachers back too", p.Attacher, len(groups)))
			break
		}
	}
	return errors.Join(problems...)
}

// withoutLease reports whether only the order of the steps keeps csi-attacher apart from the hub.
func (p Plan) withoutLease() bool { return p.Options.Mode == ModeProxy && !p.Flags.LeaderElection }

// Refusals returns an error with the reasons of all plans that cannot be adopted, nil if all can.
func Refusals(plans []Plan) error {
	var problems []error
	for _, p := range plans {
		if !p.Adoptable() {
			problems = append(problems, fmt.Errorf("%s: %s", p.Attacher, strings.Join(p.No, "; ")))
		}
	}
	return errors.Join(problems...)
}

// byWorkload groups the adoptable plans by their workload, in the order of the input.
func byWorkload(plans []Plan) [][]Plan {
	var groups [][]Plan
	index := map[*Workload]int{}
	for _, p := range plans {
		if !p.Adoptable() {
			continue
		}
		i, ok := index[p.Workload]
		if !ok {
			i = len(groups)
			index[p.Workload], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], p)
	}
	return groups
}
