package adopt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// policies returns the names of the network policies that select the Pods of a workload for Ingress, without those that
// adopt has made. One whose selector cannot be read counts: what it closes must not be opened.
func (in input) policies(w *Workload) []string {
	var names []string
	for _, o := range in.objects {
		if o.GetKind() != "NetworkPolicy" || cmp.Or(o.GetNamespace(), w.Namespace) != w.Namespace || strings.HasPrefix(o.GetName(), basePrefix) {
			continue
		}
		var policy networkingv1.NetworkPolicy
		if !decode(o, &policy) {
			names = append(names, o.GetName())
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		types := policy.Spec.PolicyTypes // empty: Ingress, and Egress if it has rules
		if (len(types) == 0 || slices.Contains(types, networkingv1.PolicyTypeIngress)) && (err != nil || selector.Matches(labels.Set(w.Template.Labels))) {
			names = append(names, o.GetName())
		}
	}
	return names
}

// OpensOtherPorts reports whether the driver's network policy keeps the ports of other containers open. If another
// policy closes them, this policy must not open them.
func (p Plan) OpensOtherPorts() bool { return len(p.policies) == 0 && !p.Options.OtherPolicies }

// policyNote returns what the user must know of the driver's network policy.
func policyNote(_ input, p Plan) string {
	switch {
	case p.HostNetwork():
		return ""
	case len(p.policies) > 0:
		return fmt.Sprintf("NetworkPolicy %s says what may connect to the Pod, so NetworkPolicy %s adds only port %d, for the hub",
			strings.Join(p.policies, ", "), p.Base(), p.Ports.Listen)
	case p.Options.OtherPolicies:
		return fmt.Sprintf("NetworkPolicy %s opens only port %d, for the hub (--other-policies): without another policy for these Pods, all their other ports are closed", p.Base(), p.Ports.Listen)
	case p.Workload.Source.File == cluster: // its policies are in the input, or a warning says why not
		return ""
	}
	return fmt.Sprintf("NetworkPolicy %s keeps all other ports of the Pod open; if another policy selects the Pod for Ingress, add --other-policies, or ports that it closes are opened: kubectl -n %s get networkpolicy",
		p.Base(), p.Workload.Namespace)
}
