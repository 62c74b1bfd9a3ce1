package adopt

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Options are what the manifests do not say.
type Options struct {
	Mode      Mode
	Image     string // of the hub, with its registry and tag or digest
	Namespace string // of objects without metadata.namespace
	// HubNamespace is where the hub of mode proxy is; "" is DefaultHubNamespace.
	HubNamespace string
	Drivers      []string // names that the user gives: of the only csi-attacher, CONTAINER=NAME or WORKLOAD/CONTAINER=NAME
	Port         int32    // of the proxy, and the next one for its health; 0: chosen
	NodeCIDRs    []string // addresses of nodes, for proxies on the host network; empty: all addresses
	Secrets      []string // Secrets that attaching needs: NAME, or NAMESPACE/NAME
	RunAsUser    *int64   // user of the proxy, if the manifest does not say it
	OpenShift    bool     // users are chosen by the cluster's security context constraints
	// Certificates says who makes those of the proxy; "" is CertManager.
	Certificates Certificates
	// WithoutLeaderElection allows a csi-attacher that takes no Lease: the order of the steps alone keeps it apart
	// from the hub.
	WithoutLeaderElection bool
	// OtherPolicies says that another network policy selects the driver's Pods for Ingress.
	OtherPolicies bool
}

// Check returns an error with every option that cannot be followed for these attachers.
func (o Options) Check(attachers []Attacher) error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if o.Image == "" || strings.ContainsFunc(o.Image, func(r rune) bool { return r <= ' ' || r > '~' }) {
		problem("--image %q: write the image with its registry and tag or digest", o.Image)
	}
	if reasons := validation.IsDNS1123Label(o.Namespace); len(reasons) > 0 {
		problem("--namespace %q: %s", o.Namespace, strings.Join(reasons, "; "))
	}
	if reasons := validation.IsDNS1123Label(o.HubNamespace); o.HubNamespace != "" && len(reasons) > 0 {
		problem("--hub-namespace %q: %s", o.HubNamespace, strings.Join(reasons, "; "))
	}
	if o.Port < 0 || o.Port > 65534 {
		problem("--port %d: write a number from 1 to 65534: the next port is for the health of the proxy", o.Port)
	}
	for _, cidr := range o.NodeCIDRs {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			problem("--node-cidr %q: write a range of addresses like 10.0.0.0/16", cidr)
		}
	}
	for _, secret := range o.Secrets {
		if !validSecret(splitSecret(secret, "default")) {
			problem("--secret %q: write NAME or NAMESPACE/NAME", secret)
		}
	}
	if o.RunAsUser != nil && *o.RunAsUser < 0 {
		problem("--run-as-user %d: write a user ID from 0", *o.RunAsUser)
	}
	return errors.Join(append(problems, o.checkDrivers(attachers)...)...)
}

func (o Options) checkDrivers(attachers []Attacher) (problems []error) {
	for _, given := range o.Drivers {
		who, name, named := strings.Cut(given, "=")
		if !named {
			name = who
		}
		if err := registry.CheckName(name); err != nil {
			problems = append(problems, fmt.Errorf("--driver: %w", err))
		}
		meant := slices.DeleteFunc(slices.Clone(attachers), func(a Attacher) bool { return named && !a.is(who) })
		if len(meant) == 1 {
			continue
		}
		var have []string
		for _, a := range attachers {
			have = append(have, a.Workload.GetName()+"/"+a.Container.Name)
		}
		problems = append(problems, fmt.Errorf("--driver %q means %d csi-attachers: write WORKLOAD/CONTAINER=NAME with one of %s",
			given, len(meant), strings.Join(have, ", ")))
	}
	return problems
}

// CheckTogether returns an error if plans cannot be carried out side by side: with every two that have one driver name,
// or names that are the same in Leases and finalizers.
func CheckTogether(plans []Plan) error {
	var problems []error
	for i, p := range plans {
		for _, first := range plans[:i] {
			if p.Driver == "" || first.Driver == "" || registry.LeaseName(p.Driver) != registry.LeaseName(first.Driver) {
				continue
			}
			what := fmt.Sprintf("are both for driver %s", p.Driver)
			if p.Driver != first.Driver {
				what = fmt.Sprintf("are for drivers %s and %s, which have one Lease and one finalizer", first.Driver, p.Driver)
			}
			problems = append(problems, fmt.Errorf("%s and %s %s: pass the manifests of one of them, or name the drivers with --driver", first.Attacher, p.Attacher, what))
			break
		}
	}
	return errors.Join(append(problems, checkWithoutLeases(plans))...)
}

// checkWithoutLeases returns an error for several workloads if a csi-attacher of them takes no Lease: the way back of one
// of them would bring the csi-attachers of the others back too, while the hub is active for their drivers.
func checkWithoutLeases(plans []Plan) error {
	groups := byWorkload(plans)
	if len(groups) < 2 || plans[0].Options.Mode != ModeProxy {
		return nil
	}
	for _, p := range slices.Concat(groups...) {
		if !p.Flags.LeaderElection {
			return fmt.Errorf("%s runs without --leader-election, and %d workloads have a csi-attacher: adopt each workload in a run of its own, because the way back of one would bring the other csi-attachers back too", p.Attacher, len(groups))
		}
	}
	return nil
}
