package status

import (
	"fmt"
	"strings"
	"time"
)

// Advice says, for people, where something stands and what they can do. Its texts may
// repeat those of drivers: hostile.
type Advice struct {
	Stands string   // where it stands or stops, as a sentence
	Do     []string // what to do next, the most useful first; empty if nothing is to be done
}

// Case is what is known about a VolumeAttachment at one moment.
type Case struct {
	Attachment Attachment
	Driver     *Driver    // that of the VolumeAttachment; nil if it is not served
	Replicas   []Replica  // of the hub
	Conflicts  []Conflict // of the configuration
	Now        time.Time
}

// Advise says where a VolumeAttachment stops and what to do. What keeps the driver from
// being worked for at all comes before what is the matter with this one.
func Advise(c Case) Advice {
	a := c.Attachment
	switch {
	case c.Driver == nil || a.State == Unclaimed:
		return adviseUnclaimed(c)
	case a.State == Attached && a.Operation == "":
		return Advice{
			Stands: fmt.Sprintf("The volume is attached to node %s.", a.Node),
			Do:     []string{"If a Pod waits still, look at its Events and at the kubelet of the node: what is missing now is to stage and mount the volume, which the driver's node plugin does."},
		}
	case a.State == Idle:
		return Advice{Stands: "Nothing is to be done for it here, and it is not marked attached."}
	}
	if advice := AdviseDriver(*c.Driver, c.Replicas, c.Now); advice.Stands != "" {
		return advice
	}
	return adviseWork(c)
}

// adviseUnclaimed: nobody here works for the driver.
func adviseUnclaimed(c Case) Advice {
	name := c.Attachment.Driver
	for _, conflict := range c.Conflicts {
		if conflict.Driver == name {
			return Advice{
				Stands: fmt.Sprintf("The driver %s was found (%s) and is not served: %s.", name, conflict.Loser, sentence(conflict.Reason)),
				Do:     []string{"Resolve the conflict in the configuration; the driver is served as soon as that is read."},
			}
		}
	}
	return Advice{
		Stands: fmt.Sprintf("No driver of the name %s is configured in this hub, so that it does nothing for this VolumeAttachment.", name),
		Do: []string{
			fmt.Sprintf("If the hub should serve it, add %s to drivers.yaml, or let discovery find it; look at the configuration's errors if it is there already.", name),
			"If another attacher serves it, look at that one's log.",
		},
	}
}

// AdviseDriver says why nothing is done here for a driver; zero if work is done.
func AdviseDriver(d Driver, replicas []Replica, now time.Time) Advice {
	switch {
	case d.State == stateDraining:
		return Advice{Stands: withReason("The hub is ending its work for the driver", d.Reason)}
	case !d.Up:
		return adviseConnection(d, now)
	case d.Mode == modeObserve:
		return adviseObserved(d)
	case d.State == statePaused && d.Mode == modePaused:
		return Advice{
			Stands: "The driver's mode is paused: the hub keeps the connection and takes no work.",
			Do:     []string{"Set its mode to active when the hub should work for it."},
		}
	case d.State == statePaused:
		return advisePaused(d)
	case d.State == stateWaiting:
		return adviseLease(d, replicas, now)
	}
	return Advice{}
}

// adviseConnection: the driver cannot be called.
func adviseConnection(d Driver, now time.Time) Advice {
	reason := d.Reason
	if reason == "" {
		reason = d.ConnectionError.Text
	}
	stands := "The driver cannot be called"
	if !d.Since.IsZero() {
		stands += fmt.Sprintf(" (%s for %s)", d.State, age(now, d.Since))
	}
	a := Advice{Stands: withReason(stands, reason)}
	has := func(words ...string) bool { return containsAny(reason, words) }
	switch {
	case d.State == stateNameMismatch:
		a.Do = []string{fmt.Sprintf("Another driver answers at %s: correct the endpoint or the name of the entry (%s).", d.Endpoint, d.Source)}
	case has("no such file"):
		a.Do = []string{fmt.Sprintf("The socket %s is missing: check that the driver's controller runs, that it makes its socket there, and that its directory is mounted into the hub's Pod.", d.Endpoint)}
	case has("permission denied"):
		a.Do = []string{fmt.Sprintf("The hub may not open %s: check the socket's owner and mode, and the user that the hub runs as.", d.Endpoint)}
	case has("connection refused"):
		a.Do = []string{fmt.Sprintf("Nothing listens at %s: check that the driver's controller runs and has not crashed; a socket may be left over from an earlier run.", d.Endpoint)}
	case has("no such host"):
		a.Do = []string{fmt.Sprintf("The host name in %s is not known: check the Service and its namespace.", d.Endpoint)}
	case has("tls", "x509", "certificate"):
		a.Do = []string{"Check the TLS files of both sides: the message says which side does not trust which."}
	case has("timeout", "deadline", "i/o"):
		a.Do = []string{fmt.Sprintf("Nothing answers at %s in time: check the driver's controller, its load, and NetworkPolicies on the way.", d.Endpoint)}
	case has("not ready"):
		a.Do = []string{"The driver says itself that it is not ready: its log says why."}
	default:
		a.Do = []string{fmt.Sprintf("Look at the log of the driver's controller, which should answer at %s.", d.Endpoint)}
	}
	a.Do = append(a.Do, "Nothing else is needed: the hub tries to connect for ever, and goes on with what waits at once.")
	return a
}

// adviseObserved: somebody else works for the driver.
func adviseObserved(d Driver) Advice {
	who := "another attacher"
	if d.Lease.Holder != "" {
		who = d.Lease.Holder + ", who holds its lease,"
	}
	return Advice{
		Stands: fmt.Sprintf("The hub only observes this driver (mode observe): %s attaches and detaches its volumes.", who),
		Do:     []string{"Look at that attacher's log.", "To hand the driver over, follow its checklist and set its mode to active."},
	}
}

// advisePaused: the hub has stopped by itself.
func advisePaused(d Driver) Advice {
	a := Advice{Stands: withReason("The hub has paused its work for the driver", d.Reason)}
	if w := d.ForeignWriter; w.Manager != "" {
		a.Do = append(a.Do, fmt.Sprintf("Another attacher (%s) wrote VolumeAttachment %s: end it, or set the driver's mode to observe.", w.Manager, w.VolumeAttachment))
	}
	a.Do = append(a.Do, "Then change the driver's entry in the configuration, or restart the hub: it goes on with the driver.")
	return a
}

// adviseLease: another process has the lease, or nobody.
func adviseLease(d Driver, replicas []Replica, now time.Time) Advice {
	l := d.Lease
	name := strings.TrimPrefix(l.Namespace+"/"+l.Name, "/")
	if l.Holder == "" {
		return Advice{
			Stands: withReason(fmt.Sprintf("Nobody holds the driver's lease %s", name), d.Reason),
			Do:     []string{"A replica should take it within seconds. If none does, check that the hub may get, create and update leases in that namespace."},
		}
	}
	stands := fmt.Sprintf("The driver's lease %s is held by %s", name, l.Holder)
	if !l.Since.IsZero() {
		stands += fmt.Sprintf(" since %s (%s)", l.Since.UTC().Format(time.RFC3339), ago(now, l.Since))
	}
	if membersOf(replicas)[l.Holder] {
		return Advice{Stands: stands + ": another replica of the hub works for it.", Do: []string{"Look at the status page of that replica."}}
	}
	return Advice{
		Stands: stands + ", which is no replica of this hub: another attacher works for it.",
		Do: []string{
			"If the hub should work for the driver, end that attacher (take the csi-attacher container out of the driver's Deployment); the hub takes the lease when it is let go or has run out.",
			"Until then look at that attacher's log.",
		},
	}
}

// adviseWork: the driver is worked for here.
func adviseWork(c Case) Advice {
	a := c.Attachment
	switch {
	case a.LastError != "" && a.State != Attaching && a.State != Detaching && a.WaitsFor == "":
		return adviseFailed(c)
	case a.WaitsFor != "":
		return adviseWaiting(c)
	}
	stands := fmt.Sprintf("The hub is at it now: to %s.", wanted(a))
	if a.Tries > 0 {
		stands = fmt.Sprintf("The hub is at it now, with the %s retry: to %s.", ordinal(a.Tries), wanted(a))
	}
	return Advice{Stands: stands, Do: []string{fmt.Sprintf("One call may take up to %s (timeout). If calls take long for all volumes, look at the log of the driver's controller.", c.Driver.Settings.Timeout)}}
}

// adviseWaiting: something else goes first.
func adviseWaiting(c Case) Advice {
	a := c.Attachment
	advice := Advice{Stands: fmt.Sprintf("To %s %s.", wanted(a), a.Waits())}
	switch a.Waiting.Kind {
	case WaitForDetach:
		advice.Do = adviseDetachFirst(a.Waiting)
	case WaitForUnowned:
		advice.Do = []string{"The driver's page lists what was left attached, with its last error: it is detached there first."}
	case WaitForWorker:
		advice.Do = []string{fmt.Sprintf("All workers of the driver that this may have are busy (%d of %d calls in flight): look at how long its calls take, and raise workers if the driver can do more at once.", c.Driver.Busy, c.Driver.Workers)}
	case WaitForNode:
		advice.Do = []string{fmt.Sprintf("The driver's maxPerNode is %d: others of the node go first.", c.Driver.Settings.MaxPerNode)}
	case WaitForVolume:
		advice.Do = []string{
			"There is one call for a volume at a time: it goes on when the other one has ended.",
			fmt.Sprintf("Only a volume of a MULTI_NODE access mode (ReadWriteMany, ReadOnlyMany) has one for each node, if parallelMultiNode is true. For this driver it is %t.", c.Driver.Settings.ParallelMultiNode),
		}
	}
	if a.LastError != "" {
		advice.Do = append(advice.Do, "The last try failed, see the last error.")
	}
	return advice
}

// adviseDetachFirst: the volume is still on another node.
func adviseDetachFirst(w Wait) []string {
	from, look := "", "look at the VolumeAttachment of the volume for that node"
	if w.Node != "" {
		from = " from " + w.Node
	}
	if w.VolumeAttachment != "" {
		look = "look at VolumeAttachment " + w.VolumeAttachment
	}
	return []string{
		fmt.Sprintf("The volume can be on one node only, and is to be detached%s first: %s.", from, look),
		"A detach begins when the last Pod with the volume has left that node and its kubelet has unmounted it. If the node is dead, taint it node.kubernetes.io/out-of-service.",
	}
}

// wanted says what is to be done.
func wanted(a Attachment) string {
	switch a.Operation {
	case Detach:
		return "detach the volume from node " + a.Node
	case Drift:
		return "attach the volume to node " + a.Node + " again, where the storage system has lost it"
	}
	return "attach the volume to node " + a.Node
}

// sentence takes the stop from the end of a text that is put into a sentence.
func sentence(text string) string { return strings.TrimRight(strings.TrimSpace(text), ".") }

// withReason makes a sentence of what is so, and why if that is known.
func withReason(what, reason string) string {
	if reason = sentence(reason); reason == "" {
		return what + "."
	}
	return what + ": " + reason + "."
}

// containsAny says whether one of the words, in small letters, is in the text.
func containsAny(text string, words []string) bool {
	text = strings.ToLower(text)
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}
