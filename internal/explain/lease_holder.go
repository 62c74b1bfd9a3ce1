package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// unrenewedAfter is how long a lease must not have been renewed for its holder to count as gone, beside its Pod: holders
// renew it more often, also those of drivers with long leases. They need not have the name of a Pod.
const unrenewedAfter = 40 * time.Second

// leaseSpace returns the namespace of the lease that the hub waits for.
func (g *gatherer) leaseSpace(v *Volume) string {
	w := walk{Facts: &g.facts, Volume: v}
	lease, _ := w.lease()
	return lease.Namespace
}

// workloadOfHolder returns the workload whose Pod holds the driver's lease, nil if it is not known. It may be another one
// than that of the driver.
func (g *gatherer) workloadOfHolder(ctx context.Context, v *Volume) *Workload {
	all := g.workloads(ctx, v)
	for i := range all {
		if slices.ContainsFunc(g.holders(v), all[i].isHolder) {
			return &all[i]
		}
	}
	return nil
}

// freeLease cures a driver whose lease another attacher holds: a living one has to end, and of a dead one the lease is
// taken away.
func (w *walk) freeLease(f *Finding) {
	l := w.heldLease()
	if l == nil || w.Holders.Value() == nil {
		return
	}
	holder := *l.Spec.HolderIdentity
	if pod := w.podOf(holder); pod != nil {
		f.Fact += fmt.Sprintf("; the holder is Pod %s/%s", pod.Namespace, pod.Name)
		if c := w.Workload; c != nil && c.Namespace == pod.Namespace && c.ownsPod(pod.Name) {
			w.endAttacher(f)
		}
		return
	}
	if l.Spec.RenewTime == nil || w.Now.Sub(l.Spec.RenewTime.Time) < unrenewedAfter {
		return
	}
	gone := w.finding(diagnosis.Diagnosis{Verdict: diagnosis.LeaseHolderGone, Object: f.Object,
		Fact: fmt.Sprintf("held by %s, whose Pod does not exist in namespace %s", holder, l.Namespace), Detail: w.expiry(l),
		Actions: []string{"Free the lease, or wait until it expires: the hub takes it then. The command changes nothing if the holder has renewed the lease in the meantime: then it lives."}})
	gone.Age = f.Age
	gone.Commands = diagnosis.Commands([]string{"kubectl", "-n", l.Namespace, "patch", "lease", l.Name, "--type=json", "-p",
		patch(test("/spec/holderIdentity", holder), test("/spec/renewTime", l.Spec.RenewTime), replace("/spec/holderIdentity", ""))})
	*f = gone
}

// heldLease returns the lease that the hub waits for if another attacher holds it, else nil.
func (w *walk) heldLease() *coordinationv1.Lease {
	lease, found := w.lease()
	if !found || lease.Holder == "" || w.isReplica(lease.Holder) {
		return nil
	}
	for i, l := range items(w.Leases.All) {
		if l.Namespace == lease.Namespace && l.Name == lease.Name && ptr.Deref(l.Spec.HolderIdentity, "") == lease.Holder {
			return &items(w.Leases.All)[i]
		}
	}
	return nil
}

// podOf returns the Pod that holds a lease, nil if there is none. The identity of a csi-attacher is the name of its host:
// that of its Pod, or that of the node if the Pod has the network of the node. Others add a random part.
func (w *walk) podOf(identity string) *corev1.Pod {
	host, _, _ := strings.Cut(identity, "_")
	for i, p := range items(w.Holders) {
		onNode := p.Spec.HostNetwork && p.Spec.NodeName != "" && (strings.HasPrefix(p.Spec.NodeName, host+".") || strings.HasPrefix(host, p.Spec.NodeName+".") || host == p.Spec.NodeName)
		if !finished(&p) && (p.Name == host || p.Spec.Hostname == host || onNode) {
			return &items(w.Holders)[i]
		}
	}
	return nil
}

// expiry says when a lease was renewed last and when it expires by itself.
func (w *walk) expiry(l *coordinationv1.Lease) string {
	r := w.record(l)
	return fmt.Sprintf("last renewed %s; it expires in %s if it is not renewed", diagnosis.Ago(r.Renewed, w.Now), diagnosis.Length(r.Renewed.Add(r.Duration).Sub(w.Now)))
}
