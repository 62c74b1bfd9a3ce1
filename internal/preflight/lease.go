package preflight

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// grantLease is what to do if rights on a lease are missing.
	grantLease = "Grant the hub get, list, watch and update on this lease, by name: deploy/components/leases. In the hub's own namespace, apply deploy/base/leases.yaml."
	// longLease is the duration from which on a lease is worth a word: twice that of a csi-attacher with default flags.
	longLease = 30 * time.Second
)

// leaseFacts is what is known of a driver's lease.
type leaseFacts struct {
	lease     rights.Lease
	object    *coordinationv1.Lease // nil: it does not exist, or err
	mayCreate bool                  // if it does not exist
	err       error
	// of the lease's namespace, asked for if the lease cannot be found outside of the hub's namespace; nil: it exists
	namespaceErr error
}

// andNamespace says that the namespace may be missing too, if this account may not look.
func (f leaseFacts) andNamespace() string {
	if f.namespaceErr == nil {
		return ""
	}
	return "; namespace " + f.lease.Namespace + " may be missing too: this account may not read it"
}

// checkLease checks that the hub can take the lease, and says who holds it.
func checkLease(d registry.Driver, f leaseFacts, u usage, now time.Time) Check {
	const name = "lease"
	ref := "Lease " + f.lease.String()
	switch {
	case apierrors.IsNotFound(f.namespaceErr):
		return failed(name, ref+" and its namespace do not exist", "Correct lease.namespace in the driver's entry: it is the namespace where csi-attacher holds its Lease.")
	case apierrors.IsForbidden(f.err):
		return failed(name, f.err.Error()+f.andNamespace(), grantLease)
	case f.err != nil:
		return failed(name, ref+" cannot be read: "+f.err.Error(), "Check the API server and the NetworkPolicies on the way.")
	case f.object == nil && !f.mayCreate:
		found := status.DiagnoseLease(status.LeaseRecord{Lease: status.Lease{Namespace: f.lease.Namespace, Name: f.lease.Name}}, "it does not exist, and the hub may not create it", nil, now)
		return failed(name, found.Object+" "+diagnosis.Because(found.Fact, found.Detail)+f.andNamespace(), strings.Join(found.Actions, " "))
	case f.object == nil && u.attachments > 0:
		return warning(name, ref+" does not exist, and the driver has VolumeAttachments: another attacher may work without a lease, or with its lease in another namespace"+f.andNamespace(),
			"Find the driver's csi-attacher. Set lease.namespace to the namespace of its lease, or end it before the driver is made active.")
	case f.object == nil:
		return ok(name, ref+" does not exist: the hub creates it when it takes the driver"+f.andNamespace())
	}
	l := explain.LeaseRecord(f.object, now)
	switch {
	case l.Expired():
		return warning(name, ref+" is "+l.Held(now), free(d.Mode))
	case l.Holder == "":
		return warning(name, ref+" has no holder", free(d.Mode))
	}
	reason := ref + " is " + l.Held(now)
	if l.Duration > longLease {
		reason += fmt.Sprintf("; if its holder ends without releasing it, the hub waits for up to %s", l.Duration)
	}
	return ok(name, reason)
}

// free says what to do about a lease that nobody holds.
func free(mode registry.Mode) string {
	if mode == registry.ModeActive {
		return "Check that a hub runs that can call the driver: it takes the lease. An attacher without a lease, or with its lease elsewhere, has to be ended before."
	}
	return "Check that the driver's csi-attacher runs, with leader election and with this lease. An attacher without a lease, or with its lease elsewhere, has to be ended before the driver is made active."
}
