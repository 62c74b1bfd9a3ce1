package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// DiagnoseUnserved says why a driver is not served here.
func DiagnoseUnserved(name string, conflicts []Conflict) []diagnosis.Diagnosis {
	var found []diagnosis.Diagnosis
	for _, c := range conflicts {
		verdict, action := diagnosis.DriverConflict, "Resolve the conflict in the configuration: the hub serves the driver as soon as it has read the change."
		if strings.Contains(c.Reason, "allowedEndpoints") { // the registry has only the text
			verdict, action = diagnosis.EndpointNotAllowed, "Add the endpoint to discovery.csiDrivers.allowedEndpoints if it is right, or correct the annotation attach-hub/endpoint of the CSIDriver."
		}
		if c.Driver == name {
			found = append(found, diagnosis.New(verdict, "csi-attach-hub", "does not serve driver "+name+", found at "+c.Loser, c.Reason, action))
		}
	}
	if len(found) == 0 {
		found = append(found, diagnosis.New(diagnosis.DriverNotConfigured, "csi-attach-hub", "does not serve driver "+name+": it is not in the configuration", "",
			fmt.Sprintf("Add %s to drivers.yaml if the hub should serve it. If it is there already, look at the errors of the configuration. If discovery has found it before, look whether its CSIDriver object still exists.", name),
			"Look at the log of the other attacher if one serves the driver."))
	}
	return found
}

// DiagnoseDriver says why this replica does no work for a driver; zero if it works for it.
func DiagnoseDriver(d Driver, replicas []string, now time.Time) diagnosis.Diagnosis {
	switch {
	case d.State == StateDraining:
		return d.says(diagnosis.DriverDraining, "draining", d.Reason, "Wait: the hub finishes the calls in flight before it stops working for the driver.").From(d.Since)
	case !d.Up:
		return d.notConnected(replicas, now)
	case d.Mode == modeObserve:
		return d.observed().From(d.Since)
	case d.State == StatePaused:
		return d.says(diagnosis.DriverPaused, "paused", "`mode: paused` in drivers.yaml",
			fmt.Sprintf("Write `mode: active` into its entry (%s) when the hub should work for it.", cmp.Or(d.Source, "drivers.yaml"))).From(d.Since)
	case d.State == StateWaitingForLease || !d.Lease.Mine:
		return DiagnoseLease(d.Lease, d.Reason, replicas, now)
	}
	return diagnosis.Diagnosis{}
}

// notConnected: the driver cannot be called. A replica that cannot call it gives up its lease in the end.
func (d Driver) notConnected(replicas []string, now time.Time) diagnosis.Diagnosis {
	since, why := cmp.Or(d.DownSince, d.Since), cmp.Or(d.Reason, d.ConnectionError.Text)
	if d.State == StateConnecting && d.ConnectionError.Text == "" && !since.IsZero() && passed(since, now) < startupTimeout {
		return d.says(diagnosis.DriverStarting, "not connected yet to "+d.Endpoint, "", "Wait some seconds: the hub is connecting.").From(since)
	}
	verdict, action := diagnosis.ParseRefusal(why, d.Endpoint, d.Source)
	switch d.State {
	case StateNameMismatch:
		verdict = diagnosis.NameMismatch
		action = fmt.Sprintf("Correct the endpoint or the name of the entry (%s): another driver answers at %s.", d.Source, d.Endpoint)
	case StateProbing:
		verdict = diagnosis.DriverNotReady
	}
	next := "No other action is needed: the hub reconnects and resumes at once."
	if l := d.Lease; d.Mode == modeActive && l.Name != "" && !l.Mine && !slices.Contains(replicas, l.Holder) {
		why = strings.TrimPrefix(diagnosis.Clause(why)+"; its lease "+l.State(), "; ")
		next = "The hub takes the lease when it is free and the driver can be called. Until then another attacher may work for the driver: look at its log if it holds the lease."
	}
	return d.says(verdict, "cannot be called at "+d.Endpoint, why, action, next).From(since)
}

// Lacks returns the capability without which a driver attaches nothing: the socket of a node plugin has no controller service.
func Lacks(capabilities []string) string {
	if slices.Contains(capabilities, "CONTROLLER_SERVICE") {
		return "PUBLISH_UNPUBLISH_VOLUME"
	}
	return "CONTROLLER_SERVICE"
}

// DiagnoseCapability says that VolumeAttachments record calls to a driver that lacks what they need.
func DiagnoseCapability(d Driver) diagnosis.Diagnosis {
	return d.says(diagnosis.CapabilityMissing, "has no "+Lacks(d.Capabilities)+", but VolumeAttachments record calls to it",
		fmt.Sprintf("%s have the finalizer or the node ID; %s may be the socket of its node plugin", plural(d.RecordedCalls, "VolumeAttachment", "VolumeAttachments"), d.Endpoint),
		"Set the endpoint to the socket of the driver's controller. Until then the hub attaches and detaches nothing.",
		"If the driver's volumes need no attach any more, replace its CSIDriver object by one with `attachRequired: false`: the field cannot be changed.")
}

// DiagnoseNoAttach says that attachRequired is false of a driver that attaches.
func DiagnoseNoAttach(d Driver) diagnosis.Diagnosis {
	return diagnosis.New(diagnosis.AttachRequiredWrong, "CSIDriver "+d.Name, "has attachRequired: false, and the driver has PUBLISH_UNPUBLISH_VOLUME",
		"the hub detaches its volumes unless their node uses them, and attaches none",
		"Create the CSIDriver again with attachRequired: true if the driver's volumes need an attach: the hub then attaches the volumes of its VolumeAttachments again.",
		"If they need none, remove the driver from the configuration when nothing of it is attached any more.")
}

// unrenewedAfter is how long a lease must not have been renewed for its holder to count as gone: holders renew it more
// often, also those of drivers with long leases.
const unrenewedAfter = 40 * time.Second

// unreachable is how hub/lease begins the reason of a lease that no answer of the API server lets it hold.
const unreachable = "the API server cannot be reached: "

// DiagnoseLease says who has the lease of a driver for which the hub does not work. reason is
// the hub's own, "" if it has none.
func DiagnoseLease(l Lease, reason string, replicas []string, now time.Time) diagnosis.Diagnosis {
	says := func(v diagnosis.Verdict, fact string, since time.Time, detail string, actions ...string) diagnosis.Diagnosis {
		return diagnosis.New(v, "Lease "+strings.TrimPrefix(l.Namespace+"/"+l.Name, "/"), fact, detail, actions...).From(since)
	}
	refused, never, renewed := strings.TrimPrefix(reason, "the lease cannot be taken: "), time.Time{}, ""
	if !l.Renewed.IsZero() {
		renewed = "last renewed " + diagnosis.Ago(l.Renewed, now)
		if l.Duration > 0 {
			renewed += fmt.Sprintf("; it expires %s after that", diagnosis.Length(l.Duration))
		}
	}
	switch {
	case strings.HasPrefix(reason, unreachable):
		return diagnosis.New(diagnosis.APIServerNotReached, "kube-apiserver", "cannot be reached", reason[strings.LastIndex(reason, ": ")+2:],
			"Check the API server, and the network from the hub to it. The hub takes its leases again as soon as the API server answers.").From(l.Renewed)
	case l.Holder == "" && strings.Contains(reason, "the hub may not create it"):
		return says(diagnosis.LeaseMissing, "cannot be taken", never, refused,
			"Create the lease, or remove lease.namespace from the driver's entry: deploy/README.md#leases-and-secrets-of-drivers.")
	case l.Holder == "" && strings.Contains(reason, "forbidden: User"):
		return says(diagnosis.WriteForbidden, "cannot be taken", never, refused,
			"Grant the hub get, list, watch and update on this lease, by name: drivers and leases.extra in the values of deploy/chart. In the hub's own namespace, apply deploy/install.yaml.")
	case l.Expired():
		return says(diagnosis.LeaseExpired, "not renewed by its holder "+l.LastHolder, l.Renewed, reason,
			"Check the Pod of the holder: it is gone or cannot reach the API server.",
			"Wait some seconds: a hub that serves the driver takes the lease. If none does, check that it may update leases in that namespace.")
	case l.Holder == "":
		return says(diagnosis.LeaseFree, l.State()+", so nobody serves the driver yet", never, reason,
			"Wait some seconds: a replica of the hub should take it. If none does, check that the hub runs and serves the driver, and that it may get, create and update leases in that namespace.")
	case slices.Contains(replicas, l.Holder):
		return says(diagnosis.LeaseHeld, "held by another replica of the hub ("+l.Holder+")", l.Since, renewed,
			"Ask all replicas with csi-attach-hub status. If that replica does not answer, wait: another one takes the lease when it has expired.")
	}
	if passed(l.Renewed, now) >= unrenewedAfter {
		return says(diagnosis.LeaseHolderGone, fmt.Sprintf("held by another attacher (%s), which has not renewed it", l.Holder), l.Renewed, "",
			"Make sure that its holder is gone, and free the lease, or wait until it expires: the hub takes it then.")
	}
	return says(diagnosis.LeaseHeld, "held by another attacher ("+l.Holder+")", l.Since, renewed,
		"End that attacher if the hub should work for the driver: remove the csi-attacher container from the driver's Deployment. The hub takes the lease when it is released or has expired.",
		"Until then, look at the log of that attacher.")
}

// Expired reports whether its last holder has let it expire. Then it has no holder.
func (l Lease) Expired() bool { return l.LastHolder != "" }

// State says who holds the lease, as the end of a sentence.
func (l Lease) State() string {
	switch {
	case l.Holder != "":
		return "is held by " + l.Holder
	case l.Expired():
		return "has expired, last held by " + l.LastHolder
	}
	return "has no holder"
}

// NobodyAttaches is what to do if nobody holds the lease of a driver that the hub only observes.
const NobodyAttaches = "Start the driver's csi-attacher, with leader election and in the namespace of the lease. Or end any attacher that works without leader election, and set the driver's mode to active."

// observed: the hub only observes the driver. Another attacher should work for it.
func (d Driver) observed() diagnosis.Diagnosis {
	found := d.says(diagnosis.DriverObserved, "only observed", "`mode: observe` in drivers.yaml")
	if l := d.Lease; l.Name+l.Holder+l.LastHolder != "" {
		found.Detail += "; its lease " + l.State() + either(l.Holder == "", ", so its volumes may not be attached at all", "")
		found.Actions = []string{either(l.Holder == "", NobodyAttaches, "Look at the log of the attacher that holds the lease.")}
	}
	found.Actions = append(found.Actions, "To hand the driver over to the hub, follow its checklist and set its mode to active.")
	return found
}
