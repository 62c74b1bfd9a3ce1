package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// service explains why nothing works for the driver, if so.
func (v *volume) service() {
	switch {
	case v.HubErr != nil:
		v.leaseAlone()
	case v.served == nil:
		v.notServed()
	default:
		v.servedDriver()
	}
}

// leaseAlone explains by the lease, because no replica has answered.
func (v *volume) leaseAlone() {
	lease := status.DiagnoseLease(v.lease, "", nil, v.now) // no replica is known
	diagnosed := v.finding(lease)
	switch {
	case v.leaseRead.missing:
		v.later(found(diagnosis.LeaseMissing, diagnosed.Object, "does not exist: no hub works for driver "+v.driver+", or its lease is in another namespace", "Check that the hub runs, that its configuration has the driver, and that --hub-namespace names its namespace."))
	case v.leaseRead.value == nil: // unknown says why it could not be read
	case v.lease.Expired(), lease.Verdict == diagnosis.LeaseHolderGone:
		v.stop(diagnosed)
	case v.lease.Holder == "":
		v.later(diagnosed)
	default:
		v.ok("%s %s", lease.Object, diagnosis.Because(v.lease.State(), lease.Detail))
	}
}

// rejected says that the hub has rejected a file of its configuration, and with what effect. It is zero if the hub has not.
func (e *explainer) rejected(follows string) (d diagnosis.Diagnosis) {
	if mistakes := e.view.Config().Errors; len(mistakes) > 0 {
		d = diagnosis.New(diagnosis.ConfigBroken, "csi-attach-hub", fmt.Sprintf("rejected a file of its configuration (mistakes: %d), and %s", len(mistakes), follows),
			strings.Join(mistakes[:min(len(mistakes), 3)], "; "), "Correct the file: the hub reads it again when it changes. csi-attach-hub validate FILE lists its errors.")
	}
	return d
}

// notServed explains a driver that the hub does not serve. Without a mistake in the configuration, it is the stop only if
// nothing shows that another attacher works for the driver.
func (v *volume) notServed() {
	unserved := status.DiagnoseUnserved(v.driver, v.view.Config().Conflicts)
	absent := unserved[0].Verdict == diagnosis.DriverNotConfigured
	switch mistakes := v.rejected("what holds instead does not have driver " + v.driver); {
	case absent && mistakes.Verdict != "":
		unserved[0], absent = mistakes, false
	case absent && slices.Contains(v.view.Members(), v.lease.Holder) && !v.view.Answered(v.lease.Holder):
		unserved[0], absent = found(diagnosis.DriverNotConfigured, "csi-attach-hub", "does not serve driver "+v.driver+" in the replica that was asked: another one ("+v.lease.Holder+") does, so their configurations differ",
			"Give all replicas the same configuration, or ask all: csi-attach-hub status without --server."), false
	}
	va := v.va.value
	worked := v.lease.Holder != "" || va != nil && (va.Status.AttachError != nil || va.Status.DetachError != nil)
	for _, d := range unserved {
		if worked && absent {
			v.later(v.finding(d))
		} else {
			v.stop(v.finding(d))
		}
	}
}

// servedDriver explains a driver that the hub serves.
func (v *volume) servedDriver() {
	d := *v.served
	d.Lease = v.lease
	members := v.view.Members()
	switch f := v.finding(status.DiagnoseDriver(d.Driver, members, v.now)); {
	case f.Verdict == "" && d.RecordedCalls > 0:
		v.stop(v.finding(status.DiagnoseCapability(d.Driver)))
	case f.Verdict == "":
		v.ok("driver %s answers at %s, and %s works for it", d.Name, d.Endpoint, cmp.Or(d.Leader, "the hub"))
	case f.Verdict == diagnosis.LeaseHeld, f.Verdict == diagnosis.DriverObserved && v.served.Lease.Holder != "":
		v.later(f) // the result of the other attacher's tries counts more
	default:
		v.stop(f)
	}
	v.driverNotes()
}

// driverNotes notes what endangers also a volume that is attached, unless it is the stop.
func (v *volume) driverNotes() {
	if v.served == nil {
		return
	}
	for _, r := range v.served.Health.Reasons {
		if r.Verdict == diagnosis.SocketMissing && v.served.Up || r.Verdict == diagnosis.CapabilityMissing && !v.stopsAt(r.Verdict) || r.Verdict == diagnosis.ForeignWriter || r.Verdict == diagnosis.AttachRequiredWrong {
			v.note(v.finding(r.Diagnosis))
		}
	}
}
