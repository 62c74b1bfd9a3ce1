package adopt

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Plan is how one driver moves to the hub, or why it cannot. It is a value: nothing changes it after NewPlans.
type Plan struct {
	Attacher
	Options  Options
	Driver   string   // "" if it is not known
	NameFrom string   // what says the driver's name, for the user to check
	Port     int32    // of the proxy
	Secrets  []string // NAMESPACE/NAME or NAMESPACE/*
	No       []string // why the driver cannot be adopted in this mode; empty if it can
	Notes    []string // what the user must know, decide or look up
	roles    []string // what can be removed with csi-attacher
	policies []string // other network policies for what may connect to the Pod
}

// Mode is how the hub takes the place of a csi-attacher.
type Mode string

const (
	ModeProxy  Mode = "proxy"   // the hub in its own Deployment, and a proxy beside the driver
	ModeDropIn Mode = "drop-in" // the hub's image in the csi-attacher container
)

// Modes are all modes, the default first.
var Modes = []Mode{ModeProxy, ModeDropIn}

// The states of the driver's manifest on its way.
const (
	StepObserve = "observe" // the proxy is there, and csi-attacher works
	StepActive  = "active"  // csi-attacher is removed
)

// Steps returns the steps of a mode in their order. In place of a csi-attacher there is nothing to observe.
func (m Mode) Steps() []string {
	if m == ModeDropIn {
		return []string{StepActive}
	}
	return []string{StepObserve, StepActive}
}

// Options are what the manifests do not say.
type Options struct {
	Mode         Mode
	Image        string   // of the proxy, or of the hub in mode drop-in, with its registry and tag or digest
	Namespace    string   // of objects without metadata.namespace; "" if each names one
	HubNamespace string   // where the hub of mode proxy is
	Drivers      []string // names that the user gives: of the only csi-attacher, or CONTAINER=NAME
	Port         int32    // of the proxy, and the next one for its health; 0: chosen
	Secrets      []string // Secrets that attaching needs: NAME, NAMESPACE/NAME or NAMESPACE/*
	RunAsUser    *int64   // user of the proxy, if the manifest does not say it
	Unmanaged    bool     // the user has installed a driver that a provider else manages
	OpenShift    bool     // users are chosen by the cluster's security context constraints
	OwnSecrets   bool     // the user makes the Secrets with the proxies' certificates, and not cert-manager
}

// Adoptable reports whether the driver can be adopted.
func (p Plan) Adoptable() bool { return len(p.No) == 0 }

// Proxy reports whether the hub has its own Deployment, and a proxy beside the driver.
func (p Plan) Proxy() bool { return p.Options.Mode == ModeProxy }

// Base is the name of the objects on the driver's side.
func (p Plan) Base() string { return Base(p.Driver) }

// Health is the port of the proxy's health.
func (p Plan) Health() int32 { return p.Port + 1 }

// HostNetwork reports whether the driver's Pod has the node's network.
func (p Plan) HostNetwork() bool { return p.Workload.Template.Spec.HostNetwork }

// LeaseNamespace returns the namespace of csi-attacher's Lease.
func (p Plan) LeaseNamespace() string { return cmp.Or(p.Flags.LeaseNamespace, p.Workload.Namespace) }

// LeaseName returns the name of the driver's Lease.
func (p Plan) LeaseName() string { return registry.LeaseName(p.Driver) }

// LeaseWait returns how long the hub waits for the Lease of a csi-attacher that has ended.
func (p Plan) LeaseWait() string { return registry.FormatDuration(p.Flags.LeaseDuration) }

// WithoutLease reports whether only the order of the steps keeps csi-attacher apart from the hub.
func (p Plan) WithoutLease() bool { return p.Proxy() && !p.Flags.LeaderElection }

// NewPlans decides how each driver moves. objects are those of the input: they may say more, such as the names of
// drivers. The plans are in the order of the attachers.
func NewPlans(attachers []Attacher, objects []Object, o Options) []Plan {
	in := newInput(objects, o.Namespace)
	var plans []Plan
	used := map[*Workload]map[int32]bool{}
	for _, a := range attachers {
		p := Plan{Attacher: a, Options: o, policies: in.policies(a.Workload), roles: in.roles(a.Workload)}
		names := in.driverNames(a, attachers, o)
		for name, from := range names {
			if len(names) == 1 {
				p.Driver, p.NameFrom = name, from
			}
		}
		if used[a.Workload] == nil {
			used[a.Workload] = map[int32]bool{}
			if o.Port == 0 { // else the user knows what else is there
				used[a.Workload] = in.usedPorts(a.Workload)
			}
		}
		p.Port = p.choosePort(used[a.Workload])
		p.addReasons(in, names, plans)
		if p.Adoptable() {
			p.addSecrets(in)
			p.addNotes()
		}
		plans = append(plans, p)
	}
	return plans
}

// Check returns an error with every option that cannot be followed for these attachers.
func (o Options) Check(attachers []Attacher) error {
	var problems []error
	problem := func(holds bool, format string, args ...any) {
		if holds {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	problem(!slices.Contains(Modes, o.Mode), "--mode %q: write proxy or drop-in", string(o.Mode))
	for _, namespace := range []string{cmp.Or(o.Namespace, "default"), o.HubNamespace} {
		reasons := validation.IsDNS1123Label(namespace)
		problem(len(reasons) > 0, "--namespace or --hub-namespace %q: %s", namespace, strings.Join(reasons, "; "))
	}
	strange := strings.ContainsFunc(o.Image, func(r rune) bool { return r <= ' ' || r > '~' })
	problem(o.Image == "" || strange, "--image %q: write the image with its registry and tag or digest", o.Image)
	problem(o.Port < 0 || o.Port > 65534, "--port %d: write a number from 1 to 65534: the next port is for the health of the proxy", o.Port)
	for _, secret := range o.Secrets {
		problem(!validSecret(inNamespace(secret, "default")), "--secret %q: write NAME, NAMESPACE/NAME or NAMESPACE/*", secret)
	}
	problem(o.RunAsUser != nil && *o.RunAsUser < 0, "--run-as-user: write a user ID from 0")
	for _, given := range o.Drivers {
		err := registry.CheckName(givenName(given))
		problem(err != nil, "--driver: %w", err)
		var have []string
		meant := 0
		for _, a := range attachers {
			have = append(have, a.Container.Name)
			if a.meant(given) {
				meant++
			}
		}
		problem(meant != 1, "--driver %q means %d csi-attachers: write CONTAINER=NAME with one of %s, or pass the manifest of one workload", given, meant, strings.Join(have, ", "))
	}
	return errors.Join(problems...)
}

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

const (
	// maxBase bounds a base name: with the longest suffix it is still a DNS label (63), and with "-ca" a common
	// name of a certificate (64).
	maxBase    = 50
	basePrefix = "attach-hub-"
	// DefaultHubNamespace and hubName are those of the hub's own Deployment.
	DefaultHubNamespace = "csi-attach-hub"
	hubName             = "csi-attach-hub"
	proxyName           = "csi-attach-proxy"
	hubProgram          = "/csi-attach-hub" // in the image
)

// DefaultImage returns the image that a mode puts beside a driver.
func DefaultImage(mode Mode) string {
	if mode == ModeDropIn {
		return hubName
	}
	return proxyName
}

// HasRegistry reports whether the image names a registry, without which nodes can hardly pull it.
func (o Options) HasRegistry() bool { return strings.Contains(o.Image, "/") }

// Base returns the name of the objects on the driver's side, a DNS label of at most 50 characters.
func Base(driver string) string {
	base := basePrefix + strings.ToLower(strings.ReplaceAll(driver, ".", "-"))
	if len(base) <= maxBase {
		return base
	}
	sum := sha256.Sum256([]byte(driver))
	return strings.TrimRight(base[:maxBase-9], "-") + "-" + hex.EncodeToString(sum[:4])
}

// DriverLabel is the label of the driver's Pods with a proxy.
func (p Plan) DriverLabel() string { return "driver.attach-hub/" + p.Driver }
