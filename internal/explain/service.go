package explain

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

// service says what keeps anybody from working for the driver.
func (w *walk) service() {
	if w.Driver == "" {
		return
	}
	switch {
	case w.Hub.Err != nil:
		w.leaseAlone()
	case w.Served == nil:
		w.notServed()
	default:
		w.served(w.Served)
	}
}

// leaseAlone: the hub was not asked, so that the lease is all there is to go by.
func (w *walk) leaseAlone() {
	const next = "check that the hub runs, and that its drivers.yaml has the driver"
	lease, held := w.lease()
	switch {
	case w.Leases.All.Value() == nil: // unknown says why they could not be read
	case lease == nil && w.Leases.OthersErr != nil:
		w.later(LeaseMissing, "Lease "+w.Leases.Name, "there is none in "+w.Leases.Where+", and other namespaces could not be looked into", next)
	case lease == nil:
		w.later(LeaseMissing, "Lease "+w.Leases.Name, "there is none in "+w.Leases.Where+": no attacher with leader election has ever worked for driver "+w.Driver, next)
	case holder(lease) == "":
		w.later(LeaseFree, leaseRef(lease), "nobody holds it: no attacher works for driver "+w.Driver, next)
	case !held:
		w.stop(LeaseExpired, leaseRef(lease), w.leaseFact(lease), "who holds it is gone or cannot reach the API server: check its Pod; another attacher may take the lease now")
	default:
		w.ok("%s: %s", leaseRef(lease), w.leaseFact(lease))
	}
}

// notServed: the hub was asked and does not know the driver.
func (w *walk) notServed() {
	const object = "csi-attach-hub"
	conflicts := w.Hub.View.Conflicts(w.Driver)
	lease, held := w.lease()
	fact := fmt.Sprintf("no driver of the name %s is configured in the hub", w.Driver)
	next := fmt.Sprintf("add %s to drivers.yaml, or let discovery find it; if another attacher serves it, look at that one's log", w.Driver)
	switch {
	case held && w.isReplica(holder(lease)):
		w.later(LeaseHeld, leaseRef(lease), w.leaseFact(lease)+": a replica of the hub that was not asked, or has not answered; those that have do not have the driver in their configuration",
			"ask all replicas, without --server, or that one; if their configurations stay different for minutes, look at the log of those that are behind")
	case held:
		w.ok("%s: %s, and not a driver of the hub: another attacher works for it", leaseRef(lease), w.leaseFact(lease))
		w.later(DriverNotConfigured, object, fact, fmt.Sprintf("look at the log of %s, which holds the driver's lease", holder(lease)))
	case len(conflicts) == 0 && w.Leases.unread():
		w.later(DriverNotConfigured, object, fact, next) // another attacher may work for it
	case len(conflicts) == 0:
		w.stop(DriverNotConfigured, object, fact, next)
	}
	for _, c := range conflicts {
		verdict, do := DriverConflict, "resolve the conflict in the configuration; the driver is served as soon as that is read"
		if strings.Contains(c.Reason, "allowedEndpoints") {
			verdict, do = EndpointNotAllowed, "add the endpoint to discovery.csiDrivers.allowedEndpoints if it is right, or correct the annotation attach-hub/endpoint of the CSIDriver"
		}
		w.stop(verdict, object, fmt.Sprintf("driver %s was found (%s) and is not served: %s", w.Driver, c.Loser, c.Reason), do)
	}
	for _, e := range w.Hub.View.ConfigErrors() {
		w.note(ConfigBroken, object, "the last reload of the configuration failed, the one before holds: "+e, "correct the file: csi-attach-hub validate")
	}
}

// served: the hub knows the driver.
func (w *walk) served(d *hubclient.Driver) {
	object := "driver " + d.Name
	if n := len(w.Hub.View.Conflicts(d.Name)); n > 0 {
		for _, c := range w.Hub.View.Conflicts(d.Name) {
			w.note(DriverConflict, object, fmt.Sprintf("it was found at %s too, which is not served: %s", c.Loser, c.Reason), "")
		}
	}
	if f := d.ForeignWriter; f.Manager != "" {
		w.note(ForeignWriter, object, fmt.Sprintf("another attacher (%s) wrote VolumeAttachment %s %s", f.Manager, f.VolumeAttachment, w.ago(f.Time)), "end it, or set the driver's mode to observe")
	}
	switch {
	case d.State == "Draining":
		w.stop(DriverDraining, object, "the hub is ending its work for it: "+d.Reason, "nothing: another replica takes it, or it was taken from the configuration")
	case !d.Up:
		w.cannotCall(d)
	case d.Mode == "observe":
		w.later(DriverObserved, object, "the hub only observes it (mode: observe): "+w.whoElse(d), adviceFor(d, w.Hub.View, w.Now))
	case d.State == "Paused":
		w.stop(DriverPaused, object, "it is paused: "+d.Reason, adviceFor(d, w.Hub.View, w.Now))
	case !d.Lease.Mine:
		w.notLed(d)
	default:
		w.ok("driver %s answers at %s, and %s works for it", d.Name, d.Endpoint, orEmpty(d.Leader, "the hub"))
	}
}

// cannotCall: the driver is not connected, or not well.
func (w *walk) cannotCall(d *hubclient.Driver) {
	reason := orEmpty(d.Reason, d.ConnectionError.Text)
	verdict := CannotConnect
	switch {
	case d.State == "NameMismatch":
		verdict = NameMismatch
	case d.State == "Probing":
		verdict = DriverNotReady
	case strings.Contains(reason, "no such file or directory"):
		verdict = SocketMissing
	}
	w.stop(verdict, "driver "+d.Name, fmt.Sprintf("it cannot be called at %s (%s since %s): %s", d.Endpoint, d.State, w.at(d.Since), reason), adviceFor(d, w.Hub.View, w.Now))
}

// notLed: the driver could be called, and no replica that answered has its lease.
func (w *walk) notLed(d *hubclient.Driver) {
	lease, held := w.lease()
	object := "Lease " + d.Lease.Namespace + "/" + d.Lease.Name
	switch {
	case held && w.isReplica(holder(lease)):
		w.later(LeaseHeld, leaseRef(lease), w.leaseFact(lease)+": a replica of the hub that was not asked, or has not answered", "ask all replicas, without --server, or that one; if it does not answer, see its log")
	case held:
		w.later(LeaseHeld, leaseRef(lease), w.leaseFact(lease)+", which is no replica of the hub: another attacher works for driver "+d.Name,
			"end that attacher (take csi-attacher out of the driver's Deployment) if the hub is to work for it; else look at its log")
	case lease != nil && holder(lease) != "":
		w.stop(LeaseExpired, leaseRef(lease), w.leaseFact(lease), "the hub takes it within seconds; if not, check that it may update leases in that namespace")
	case lease == nil && d.Lease.Holder != "":
		w.later(LeaseHeld, object, fmt.Sprintf("it is held by %s since %s, as the hub sees it", d.Lease.Holder, w.at(d.Lease.Since)), "look at the log of who holds it, or end that attacher")
	default:
		w.stop(LeaseFree, object, "nobody holds it yet: "+orEmpty(d.Reason, "a replica of the hub should take it"), "wait some seconds; if this lasts, check that the hub may get, create and update leases in that namespace")
	}
}

// whoElse says who works for a driver that the hub only observes.
func (w *walk) whoElse(d *hubclient.Driver) string {
	if lease, held := w.lease(); held {
		return leaseRef(lease) + " is " + strings.TrimPrefix(w.leaseFact(lease), "it is ")
	}
	if d.Lease.Holder != "" {
		return "its lease is held by " + d.Lease.Holder
	}
	if w.Leases.unread() {
		return "who holds its lease is not known"
	}
	return "nobody holds its lease, so that nobody may be attaching its volumes"
}

// isReplica says whether an identity is that of a replica of the hub.
func (w *walk) isReplica(identity string) bool {
	for _, asked := range w.Hub.View.Replicas {
		for _, r := range asked.Overview.Replicas {
			if r.Identity == identity {
				return true
			}
		}
	}
	return false
}

// lease returns the lease that counts: the one that the hub goes by, else the one that
// was renewed last; nil if there is none. held: somebody has it, and it has not expired.
func (w *walk) lease() (lease *coordinationv1.Lease, held bool) {
	all := items(w.Leases.All)
	for i := range all {
		l := &all[i]
		if w.Served != nil && w.Served.Lease.Namespace == l.Namespace && w.Served.Lease.Name == l.Name {
			lease = l
			break
		}
		if lease == nil || renewed(l).After(renewed(lease)) {
			lease = l
		}
	}
	if lease == nil || holder(lease) == "" {
		return lease, false
	}
	return lease, !w.Now.After(renewed(lease).Add(lasts(lease)))
}

func holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

func renewed(l *coordinationv1.Lease) time.Time {
	if l.Spec.RenewTime == nil {
		return time.Time{}
	}
	return l.Spec.RenewTime.Time
}

func lasts(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

func leaseRef(l *coordinationv1.Lease) string { return "Lease " + l.Namespace + "/" + l.Name }

// leaseFact says who holds a lease, since when, and whether that one is still alive.
func (w *walk) leaseFact(l *coordinationv1.Lease) string {
	fact := "it is held by " + holder(l)
	if l.Spec.AcquireTime != nil {
		fact += " since " + l.Spec.AcquireTime.UTC().Format(time.RFC3339)
	}
	if at := renewed(l); !at.IsZero() {
		fact += ", last renewed " + w.at(at)
		if over := w.Now.Sub(at.Add(lasts(l))); over > 0 {
			fact += fmt.Sprintf(": it has expired, it lasts %s", lasts(l))
		}
	}
	return fact
}

// adviceFor is what the hub's own page advises for a driver that is not worked for.
func adviceFor(d *hubclient.Driver, v hubclient.View, now time.Time) string {
	var replicas []status.Replica
	for _, r := range v.Replicas {
		replicas = append(replicas, r.Overview.Replicas...)
	}
	return strings.Join(status.AdviseDriver(d.Driver, replicas, now).Do, " ")
}
