package explain

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
)

// accountPrefix begins the user name of a ServiceAccount, "system:serviceaccount:NAMESPACE:NAME".
const accountPrefix = "system:serviceaccount:"

// makeSecret cures a volume whose secret does not exist.
func (w *walk) makeSecret(f *Finding) {
	if s := w.Secret; s.Object.Missing() {
		f.Commands = diagnosis.Commands([]string{"kubectl", "-n", s.Namespace, "create", "secret", "generic", s.Name, "--from-env-file=FILE"})
		f.Next += " FILE has its keys and values, one KEY=VALUE in a line, as the driver's documentation has them."
	}
}

// account returns the ServiceAccount of the hub, NAMESPACE:NAME, "" if its Pods do not agree on one.
func (g *gatherer) account(ctx context.Context) string {
	all := ""
	for _, pod := range g.hubPods(ctx) {
		account := pod.Namespace + ":" + cmp.Or(pod.Spec.ServiceAccountName, "default")
		if all != "" && account != all {
			return ""
		}
		all = account
	}
	return all
}

// grant cures a hub that lacks a right: it grants exactly that one, and to the hub only.
func (w *walk) grant(f *Finding) {
	d, denied := diagnosis.ParseDenial(f.cause)
	if !denied || w.Account == "" || d.User != accountPrefix+w.Account || !w.hubNeeds(d) {
		return
	}
	kind, scope := "clusterrole", []string{"kubectl"}
	if d.Namespace != "" {
		kind, scope = "role", []string{"kubectl", "-n", d.Namespace}
	}
	resource, what := d.Resource, d.Resource
	if d.Group != "" {
		resource += "." + d.Group
	}
	if d.Subresource != "" {
		resource, what = resource+"/"+d.Subresource, what+"-"+d.Subresource
	}
	name := "csi-attach-hub-" + d.Verb + "-" + what
	role := append(slices.Clone(scope), "create", kind, name, "--verb="+d.Verb, "--resource="+resource)
	if d.Resource == "secrets" { // no other
		name += "-" + d.Name
		role = append(slices.Clone(scope), "create", kind, name, "--verb="+d.Verb, "--resource="+resource, "--resource-name="+d.Name)
	}
	f.Commands = diagnosis.Commands(role, append(scope, "create", kind+"binding", name, "--"+kind+"="+name, "--serviceaccount="+w.Account))
	f.Next = "Grant the hub that right: with the manifest of the hub, which has it, or with these commands, which grant nothing else."
	if d.Resource == "secrets" {
		f.Next = "Grant the hub get on secret " + d.Namespace + "/" + d.Name + ", and on no other, by name: deploy/components/secrets, or these commands."
	}
}

// hubNeeds reports whether the hub needs what it was denied. The text of an error must not lead to another right.
func (w *walk) hubNeeds(d diagnosis.Denial) bool {
	if s := w.Secret; d.Resource == "secrets" && d.Group == "" && d.Subresource == "" {
		return d.Verb == "get" && s.Name != "" && d.Name == s.Name && d.Namespace == s.Namespace
	}
	return slices.ContainsFunc(rights.Needed(rights.Features{Discovery: true}), func(r rights.Right) bool {
		return r.Verb == d.Verb && r.Group == d.Group && r.Resource == d.Resource && r.Subresource == d.Subresource && r.Namespace == d.Namespace
	})
}

// hubPods returns the Pods of the hub that were asked.
func (g *gatherer) hubPods(ctx context.Context) []corev1.Pod {
	return items(selected(list(ctx, g, "Pods of the hub", metav1.ListOptions{LabelSelector: hubclient.PodLabels}, g.Kube.CoreV1().Pods(g.Namespace).List,
		func(l *corev1.PodList) []corev1.Pod { return l.Items }), g.isReplica))
}

// isReplica reports whether a Pod is one of the replicas that were asked.
func (g *gatherer) isReplica(pod *corev1.Pod) bool {
	return slices.ContainsFunc(g.facts.Hub.View.Replicas, func(r hubclient.Replica) bool {
		return r.Replica == "Pod "+pod.Namespace+"/"+pod.Name || strings.HasPrefix(r.Overview.Identity, pod.Name+"_")
	})
}
