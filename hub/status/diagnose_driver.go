package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// DiagnoseUnserved says why a driver is not served here.
func DiagnoseUnserved(name string, conflicts []Conflict) []diagnosis.Diagnosis {
	const object = "csi-attach-hub"
	var found []diagnosis.Diagnosis
	for _, c := range conflicts {
		if c.Driver != name {
			continue
		}
		d := diagnosis.Diagnosis{
			Verdict: diagnosis.DriverConflict, Object: object,
			Fact: fmt.Sprintf("does not serve driver %s, found at %s", name, c.Loser), Detail: c.Reason,
			Actions: []string{"Resolve the conflict in the configuration: the hub serves the driver as soon as it has read the change."},
		}
		if strings.Contains(c.Reason, "allowedEndpoints") { // the registry has only the text
			d.Verdict = diagnosis.EndpointNotAllowed
			d.Actions = []string{"Add the endpoint to discovery.csiDrivers.allowedEndpoints if it is right, or correct the annotation attach-hub/endpoint of the CSIDriver."}
		}
		found = append(found, d)
	}
	if len(found) > 0 {
		return found
	}
	return []diagnosis.Diagnosis{{
		Verdict: diagnosis.DriverNotConfigured, Object: object, Fact: fmt.Sprintf("does not serve driver %s: it is not in the configuration", name),
		Actions: []string{
			fmt.Sprintf("Add %s to drivers.yaml, or let discovery find it, if the hub should serve it. If it is there already, look at the errors of the configuration.", name),
			"Look at the log of the other attacher if one serves the driver.",
		},
	}}
}

// LeaseRecord is a lease with what is known to whoever has read its object. The zero Duration says
// that nobody has.
type LeaseRecord struct {
	Lease
	Duration time.Duration // for so long it is held after it was renewed
}

// At returns the lease as it is at a time, by the clock of the caller: a lease that was not renewed in time has
// no holder any more.
func (l LeaseRecord) At(now time.Time) LeaseRecord {
	if l.Holder != "" && l.Duration > 0 && now.After(l.Renewed.Add(l.Duration)) {
		l.Holder, l.LastHolder = "", l.Holder
	}
	return l
}

// DiagnoseDriver says why this replica does no work for a driver; zero if it works for it. The lease is
// d.Lease, or what its object says.
func DiagnoseDriver(d Driver, lease LeaseRecord, replicas []Replica, now time.Time) diagnosis.Diagnosis {
	found := diagnosis.Diagnosis{Object: d.ref(), Since: d.Since}
	switch {
	case d.State == stateDraining:
		found.Verdict, found.Fact, found.Detail = diagnosis.DriverDraining, "draining", d.Reason
		found.Actions = []string{"Wait: the hub finishes the calls in flight before it stops working for the driver."}
	case !d.Up:
		d.notConnected(&found, lease, replicas, now)
	case d.Mode == modeObserve:
		lease.observed(&found, now)
	case d.State == statePaused:
		found.Verdict, found.Fact = diagnosis.DriverPaused, "paused by `mode: paused` in drivers.yaml"
		found.Actions = []string{fmt.Sprintf("Write `mode: active` into its entry (%s) when the hub should work for it.", cmp.Or(d.Source, "drivers.yaml"))}
	case d.State == stateWaiting || !d.Lease.Mine:
		return DiagnoseLease(lease, d.Reason, replicas, now)
	default:
		return diagnosis.Diagnosis{}
	}
	return found
}

// notConnected: the driver cannot be called. A replica that cannot call it gives up its lease in the end.
func (d Driver) notConnected(found *diagnosis.Diagnosis, lease LeaseRecord, replicas []Replica, now time.Time) {
	found.Since = cmp.Or(d.DownSince, d.Since)
	found.Detail = cmp.Or(d.Reason, d.ConnectionError.Text)
	if d.State == stateConnecting && d.ConnectionError.Text == "" && !found.Since.IsZero() && passed(found.Since, now) < startupTimeout {
		found.Verdict, found.Fact, found.Detail = diagnosis.DriverStarting, "not connected yet to "+d.Endpoint, ""
		found.Actions = []string{"Wait some seconds: the hub is connecting."}
		return
	}
	verdict, action := diagnosis.ParseRefusal(found.Detail, d.Endpoint)
	found.Verdict, found.Fact = verdict, "cannot be called at "+d.Endpoint
	switch d.State {
	case stateNameMismatch:
		found.Verdict = diagnosis.NameMismatch
		action = fmt.Sprintf("Correct the endpoint or the name of the entry (%s): another driver answers at %s.", d.Source, d.Endpoint)
	case stateProbing:
		found.Verdict = diagnosis.DriverNotReady
	}
	found.Actions = []string{action}
	switch free := lease.Holder == ""; {
	case d.Mode != modeActive || lease.Name == "" || d.Lease.Mine || !free && membersOf(replicas)[lease.Holder]:
		found.Actions = append(found.Actions, "No other action is needed: the hub reconnects and resumes at once.")
	case free:
		fact := "no replica holds its lease"
		if lease.Expired() {
			fact = "its lease has expired, last held by " + lease.LastHolder
		}
		found.Detail = andAlso(found.Detail, fact)
		found.Actions = append(found.Actions, "No other action is needed: the first replica that can call the driver takes the lease and resumes. Until then a csi-attacher may take it.")
	default:
		found.Detail = andAlso(found.Detail, "its lease is held by "+lease.Holder+", which is not a replica of the hub")
		found.Actions = append(found.Actions, "Look at the log of the holder of the lease, which may work for the driver. The hub waits for the lease, and does not take it before it can call the driver.")
	}
}

// andAlso returns a detail with one more fact.
func andAlso(detail, fact string) string {
	if detail = diagnosis.Clause(detail); detail == "" {
		return fact
	}
	return detail + "; " + fact
}

// DiagnoseCapability says that VolumeAttachments record calls to a driver that has no PUBLISH_UNPUBLISH_VOLUME; zero if it
// is not so.
func DiagnoseCapability(d Driver) diagnosis.Diagnosis {
	if d.RecordedCalls == 0 {
		return diagnosis.Diagnosis{}
	}
	return diagnosis.Diagnosis{
		Verdict: diagnosis.CapabilityMissing, Object: d.ref(), Fact: "has no PUBLISH_UNPUBLISH_VOLUME, but VolumeAttachments record calls to it",
		Detail: fmt.Sprintf("%s have the finalizer or the node ID; %s may be the socket of its node plugin", plural(d.RecordedCalls, "VolumeAttachment", "VolumeAttachments"), d.Endpoint),
		Actions: []string{
			"Set the endpoint to the socket of the driver's controller. Until then the hub attaches and detaches nothing.",
			"If the driver's volumes need no attach any more, set attachRequired of its CSIDriver to false.",
		},
	}
}

// DiagnoseNoAttach says that attachRequired is false of a driver that attaches; zero if it is not so.
func DiagnoseNoAttach(d Driver) diagnosis.Diagnosis {
	if !d.NoAttach {
		return diagnosis.Diagnosis{}
	}
	found := diagnosis.Diagnosis{
		Verdict: diagnosis.AttachRequiredWrong, Object: "CSIDriver " + d.Name, Fact: "has attachRequired: false, and the driver has PUBLISH_UNPUBLISH_VOLUME",
		Detail: "its volumes are detached unless their node uses them, and none is attached",
		Actions: []string{
			"Create the CSIDriver again with attachRequired: true if the driver's volumes need an attach: the hub then attaches the volumes of its VolumeAttachments again.",
			"If they need none, remove the driver from the configuration when nothing of it is attached any more.",
		},
	}
	for _, l := range d.Lanes {
		if n := l.Queued + l.Delayed + l.Running; l.Operation == Detach && n > 0 {
			found.Detail = fmt.Sprintf("detaching %s unless their node uses them, and attaching none", plural(n, "volume", "volumes"))
		}
	}
	return found
}

// cannotTake is how hub/lease begins the reason of a lease that the API server refuses.
const cannotTake = "the lease cannot be taken: "

// DiagnoseLease says who has the lease of a driver for which the hub does not work. reason is
// the hub's own, "" if it has none.
func DiagnoseLease(l LeaseRecord, reason string, replicas []Replica, now time.Time) diagnosis.Diagnosis {
	d := diagnosis.Diagnosis{Verdict: diagnosis.LeaseHeld, Object: "Lease " + strings.TrimPrefix(l.Namespace+"/"+l.Name, "/")}
	switch {
	case l.Holder == "" && strings.Contains(reason, "the hub may not create it"):
		d.Verdict, d.Fact, d.Detail = diagnosis.LeaseMissing, "cannot be taken", strings.TrimPrefix(reason, cannotTake)
		d.Actions = []string{"Create the lease, or remove lease.namespace from the driver's entry: deploy/README.md#leases-and-secrets-of-drivers."}
	case l.Holder == "" && strings.Contains(reason, "forbidden: User"):
		d.Verdict, d.Fact, d.Detail = diagnosis.WriteForbidden, "cannot be taken", strings.TrimPrefix(reason, cannotTake)
		d.Actions = []string{"Grant the hub get, list, watch and update on this lease, by name: drivers and leases.extra in the values of deploy/chart. In the hub's own namespace, apply deploy/install.yaml."}
	case l.Expired():
		d.Verdict, d.Fact, d.Since = diagnosis.LeaseExpired, "not renewed by its holder "+l.LastHolder, l.Renewed
		d.Detail = reason
		if l.Duration > 0 {
			d.Detail = fmt.Sprintf("its duration is %s", l.Duration)
		}
		d.Actions = []string{"Check the Pod of the holder: it is gone or cannot reach the API server.", "Wait some seconds: a hub that serves the driver takes the lease. If none does, check that it may update leases in that namespace."}
	case l.Holder == "":
		d.Verdict, d.Fact, d.Detail = diagnosis.LeaseFree, "has no holder", reason
		d.Actions = []string{"Wait some seconds: a replica of the hub should take it. If none does, check that the hub runs and serves the driver, and that it may get, create and update leases in that namespace."}
	case membersOf(replicas)[l.Holder]:
		d.Fact, d.Since, d.Detail = "held by another replica of the hub ("+l.Holder+")", l.Since, l.renewal(now)
		d.Actions = []string{"Look at the status page of that replica, or ask all replicas with csi-attach-hub status."}
	default:
		d.Fact, d.Since, d.Detail = "held by another attacher ("+l.Holder+")", l.Since, l.renewal(now)
		d.Actions = []string{
			"End that attacher if the hub should work for the driver: remove the csi-attacher container from the driver's Deployment. The hub takes the lease when it is released or has expired.",
			"Until then, look at the log of that attacher.",
		}
	}
	return d
}

// Expired reports whether its last holder has let it expire. Then it has no holder.
func (l Lease) Expired() bool { return l.LastHolder != "" }

// renewal says when the holder renewed the lease last, "" if that is not known.
func (l LeaseRecord) renewal(now time.Time) string {
	if l.Renewed.IsZero() {
		return ""
	}
	return "last renewed " + diagnosis.Ago(l.Renewed, now)
}

// Held says by whom the lease is or was held, since when, and when it was renewed last.
func (l LeaseRecord) Held(now time.Time) string {
	fact := "held by " + l.Holder
	if l.Expired() {
		fact = "expired, last held by " + l.LastHolder
	}
	switch {
	case l.Since.IsZero():
	case l.Renewed.IsZero():
		fact += " since " + diagnosis.At(l.Since, now)
	default:
		fact += " since " + l.Since.UTC().Format(time.RFC3339)
	}
	if !l.Renewed.IsZero() {
		fact += ", last renewed " + diagnosis.At(l.Renewed, now)
	}
	if l.Expired() && l.Duration > 0 {
		fact += fmt.Sprintf("; its duration is %s", l.Duration)
	}
	return fact
}

// observed: the hub only observes the driver. Another attacher should work for it.
func (l LeaseRecord) observed(found *diagnosis.Diagnosis, now time.Time) {
	found.Verdict, found.Fact = diagnosis.DriverObserved, "only observed (`mode: observe` in drivers.yaml)"
	switch {
	case l.Holder != "":
		found.Detail = "its lease is " + l.Held(now)
		found.Actions = []string{"Look at the log of the attacher that holds the lease."}
	case l.Expired():
		found.Detail = "its lease has expired, last held by " + l.LastHolder + ", so its volumes may not be attached at all"
		found.Actions = []string{"Check that the driver's csi-attacher runs: it has not renewed the lease in time."}
	case l.Name != "":
		found.Detail = "its lease has no holder, so its volumes may not be attached at all"
		found.Actions = []string{"Check that the driver's csi-attacher runs, with leader election and in the namespace of the lease."}
	}
	found.Actions = append(found.Actions, "To hand the driver over to the hub, follow its checklist and set its mode to active.")
}
