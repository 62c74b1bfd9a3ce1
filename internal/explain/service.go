package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

// service explains why nothing works for the driver, if so.
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

// leaseAlone explains by the lease, because no replica has answered.
func (w *walk) leaseAlone() {
	lease, exists := w.lease()
	diagnosed := w.finding(status.DiagnoseLease(lease, "", nil, w.Now)) // no replica is known
	switch {
	case w.Leases.All.Value() == nil: // unknown says why they could not be read
	case !exists:
		fact := "does not exist in " + w.Leases.Where + ": no attacher with leader election has ever worked for driver " + w.Driver
		if w.Leases.OthersErr != nil {
			fact = "does not exist in " + w.Leases.Where + ", and other namespaces could not be read"
		}
		w.later(found(diagnosis.LeaseMissing, "Lease "+w.Leases.Name, fact, "Check that the hub runs, and that its drivers.yaml has the driver."))
	case lease.Expired():
		w.stop(diagnosed)
	case lease.Holder == "":
		w.later(diagnosed)
	default:
		w.ok("%s is %s", leaseRef(lease), lease.Held(w.Now))
	}
}

// notServed explains a driver that the hub does not serve.
func (w *walk) notServed() {
	conflicts := w.Hub.View.Conflicts(w.Driver)
	lease, exists := w.lease()
	held := exists && lease.Holder != ""
	silent := held && w.isReplica(lease.Holder)
	switch {
	case silent:
		w.later(w.silentReplica(lease, "; the other replicas do not have the driver in their configuration",
			"Ask all replicas (without --server), or that one. If their configurations stay different for minutes, look at the logs of the replicas without the driver."))
	case held:
		w.ok("%s is %s: an attacher outside of the hub works for the driver", leaseRef(lease), lease.Held(w.Now))
	}
	broken := w.Hub.View.ConfigErrors()
	for _, d := range status.DiagnoseUnserved(w.Driver, conflicts) {
		f := w.finding(d)
		if len(broken) > 0 && len(conflicts) == 0 {
			f, broken = w.rejected(broken), nil
		}
		switch {
		case len(conflicts) > 0:
			w.stop(f)
		case silent: // that replica may have the driver
		case held:
			if f.Verdict == diagnosis.DriverNotConfigured {
				f.Next = fmt.Sprintf("Look at the log of %s, which holds the driver's lease.", lease.Holder)
			}
			w.later(f)
		case w.Leases.unread(): // another attacher may work for it
			w.later(f)
		default:
			w.stop(f)
		}
	}
	for _, e := range broken {
		w.note(found(diagnosis.ConfigBroken, "csi-attach-hub", "the configuration has an error, and what was read before holds instead: "+e, "Correct the file: csi-attach-hub validate FILE lists its errors."))
	}
}

// mostErrors is how many errors of drivers.yaml a finding has.
const mostErrors = 3

// rejected says that the driver is not served since the hub has rejected its configuration.
func (w *walk) rejected(errors []string) Finding {
	text := strings.Join(errors[:min(len(errors), mostErrors)], "; ")
	if more := len(errors) - mostErrors; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return w.finding(diagnosis.Diagnosis{Verdict: diagnosis.ConfigBroken, Object: "csi-attach-hub",
		Fact: fmt.Sprintf("rejected a file of its configuration, and what holds instead does not have driver %s", w.Driver), Detail: text,
		Actions: []string{"Correct the file: the hub reads it again when it changes. csi-attach-hub validate FILE lists its errors."}})
}

// served explains a driver that the hub serves.
func (w *walk) served(d *hubclient.Driver) {
	object := "driver " + d.Name
	for _, c := range w.Hub.View.Conflicts(d.Name) {
		w.note(conflictNote(object, c))
	}
	if f := d.ForeignWriter; f.Manager != "" {
		w.note(w.finding(diagnosis.Diagnosis{Verdict: diagnosis.ForeignWriter, Object: object, Last: f.Time,
			Fact: fmt.Sprintf("another attacher (%s) wrote VolumeAttachment %s", f.Manager, f.VolumeAttachment), Actions: []string{"End that attacher, or set the driver's mode to observe."}}))
	}
	w.capabilityNote(d)
	lease, exists := w.lease()
	if !exists {
		lease = status.LeaseRecord{Lease: d.Lease}
	}
	switch f := w.finding(status.DiagnoseDriver(d.Driver, lease, w.Hub.View.Members(), w.Now)); f.Verdict {
	case "":
		w.ok("driver %s answers at %s, and %s works for it", d.Name, d.Endpoint, cmp.Or(d.Leader, "the hub"))
	case diagnosis.DriverObserved:
		if d.Lease.Holder == "" && lease.Holder == "" { // nobody tries
			w.stop(f)
		} else { // the result of the other attacher's tries counts more
			w.later(f)
		}
	case diagnosis.LeaseHeld:
		if w.isReplica(lease.Holder) {
			f = w.silentReplica(lease, "", "Ask all replicas (without --server), or that one. If it does not answer, look at its log.")
		}
		w.later(f)
	default:
		w.stop(f)
	}
}

// capabilityNote notes that the driver's endpoint may be wrong.
func (w *walk) capabilityNote(d *hubclient.Driver) {
	if found := status.DiagnoseCapability(d.Driver); found.Verdict != "" {
		w.note(w.finding(found))
	}
}

// conflictNote says that the driver of an object was found at another place too.
func conflictNote(object string, c status.Conflict) Finding {
	return found(diagnosis.DriverConflict, object, fmt.Sprintf("also found at %s, which is not served: %s", c.Loser, c.Reason), "")
}

// silentReplica says that the lease is held by a replica of the hub that has not answered.
func (w *walk) silentReplica(l status.LeaseRecord, more, next string) Finding {
	return found(diagnosis.LeaseHeld, leaseRef(l), l.Held(w.Now)+": a replica of the hub that was not asked, or has not answered"+more, next)
}

// isReplica reports whether an identity is that of a replica of the hub.
func (w *walk) isReplica(identity string) bool {
	return slices.ContainsFunc(w.Hub.View.Members(), func(r status.Replica) bool { return r.Identity == identity })
}

// lease returns the lease that the hub reports for the driver, else the lease that was renewed last.
func (w *walk) lease() (lease status.LeaseRecord, found bool) {
	for _, object := range items(w.Leases.All) {
		l := w.record(&object)
		if w.Served != nil && w.Served.Lease.Namespace == l.Namespace && w.Served.Lease.Name == l.Name {
			return l, true
		}
		if !found || l.Renewed.After(lease.Renewed) {
			lease, found = l, true
		}
	}
	return lease, found
}

// LeaseRecord returns the content of a Lease as of now.
func LeaseRecord(l *coordinationv1.Lease, now time.Time) status.LeaseRecord {
	return status.LeaseRecord{
		Lease: status.Lease{
			Namespace: l.Namespace, Name: l.Name,
			Holder:  ptr.Deref(l.Spec.HolderIdentity, ""),
			Since:   ptr.Deref(l.Spec.AcquireTime, metav1.MicroTime{}).Time,
			Renewed: ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{}).Time,
		},
		Duration: time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second,
	}.At(now)
}

// record is LeaseRecord. The lease has expired too if the hub says so of its own lease, whose
// clock may differ.
func (w *walk) record(l *coordinationv1.Lease) status.LeaseRecord {
	r := LeaseRecord(l, w.Now)
	if w.Served != nil && r.Holder != "" && w.Served.Lease.LastHolder == r.Holder && w.Served.Lease.Name == r.Name && w.Served.Lease.Namespace == r.Namespace {
		r.Holder, r.LastHolder = "", r.Holder
	}
	return r
}

func leaseRef(l status.LeaseRecord) string { return "Lease " + l.Namespace + "/" + l.Name }
