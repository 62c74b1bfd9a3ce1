package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// longWait is for how long a VolumeAttachment may be without success before that is
// worth a word, where the hub does not say: its default of stuckAfter.
const longWait = 15 * time.Minute

// later keeps a finding that is why it stops only if nothing nearer to the volume is.
func (w *walk) later(verdict Verdict, object, fact, next string) {
	w.lastResorts = append(w.lastResorts, Finding{verdict, object, fact, next})
}

// tries says what came of the tries so far and what the next one waits for.
func (w *walk) tries(inStatus *storagev1.VolumeError) {
	a := w.Seen.Value()
	if a != nil {
		w.waits(a.Waiting)
	}
	if text, code, when := lastError(a, inStatus); text != "" {
		w.failed(text, code, when)
	}
	if a != nil {
		w.progress(a)
	}
	for _, f := range w.lastResorts {
		w.stop(f.Verdict, f.Object, f.Fact, f.Next)
	}
	va := w.Attachment.Value()
	since := va.CreationTimestamp.Time
	if va.DeletionTimestamp != nil {
		since = va.DeletionTimestamp.Time
	}
	stuck := a != nil && a.State == status.Stuck || a == nil && w.Now.Sub(since) >= longWait
	if stuck {
		w.note(Stuck, w.attachmentRef(), "without success since "+w.at(since), "it is tried on; what is said above does not pass by itself")
	}
	if w.report.Stop == nil && va.DeletionTimestamp == nil {
		next := "wait some seconds; if this lasts, look at the log of the attacher that works for driver " + w.Driver
		if stuck {
			next = "look at the log of the attacher that works for driver " + w.Driver + ", and at that of the driver's controller"
		}
		w.stop(NoReasonKnown, w.attachmentRef(), "nothing is known that speaks against it", next)
	}
}

// waits says that the hub detaches the volume somewhere else first.
func (w *walk) waits(wait status.Wait) {
	switch {
	case w.told(WaitingForDetach): // by the objects, which say more
	case wait.Kind == status.WaitForDetach:
		from, next := "", "look at the other VolumeAttachment of the volume"
		if wait.Node != "" {
			from = " from node " + wait.Node
		}
		if wait.VolumeAttachment != "" {
			next = "find out why it is not detached: csi-attach-hub explain " + wait.VolumeAttachment
		}
		w.stop(WaitingForDetach, w.attachmentRef(), "it waits for the detach of the volume"+from, next)
	case wait.Kind == status.WaitForUnowned:
		w.stop(WaitingForDetach, w.attachmentRef(), "it waits for the detach of the volume from node ID "+wait.NodeID+", where it was left attached and no VolumeAttachment asks for it",
			"csi-attach-hub status lists what was left attached, with the driver's last error")
	}
}

// lastError returns the one that is told last: the hub's, which is newer than what is in
// the status, else that one. when is zero if it is not known.
func lastError(a *status.Attachment, inStatus *storagev1.VolumeError) (text string, code codes.Code, when time.Time) {
	if inStatus != nil {
		text, when = inStatus.Message, inStatus.Time.Time
		if inStatus.ErrorCode != nil {
			code = codes.Code(*inStatus.ErrorCode)
		}
	}
	if a != nil && a.LastError != "" && a.LastError != text {
		text, code, when = a.LastError, codes.OK, time.Time{}
	}
	// What makes it stuck is the error behind these words.
	if _, last, found := strings.Cut(text, "the last error: "); found && strings.HasPrefix(text, "stuck: ") {
		text = last
	}
	if m := callError.FindStringSubmatch(text); m != nil && code == codes.OK {
		code = codeNamed(m[1])
	}
	return text, code, when
}

// callError is the text of the error of a gRPC call.
var callError = regexp.MustCompile(`(?s)^rpc error: code = ([A-Za-z]+) desc = (.*)$`)

func codeNamed(name string) codes.Code {
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		if c.String() == name {
			return c
		}
	}
	return codes.Unknown
}

// failed says what the last error means.
func (w *walk) failed(text string, code codes.Code, when time.Time) {
	tried := "at the last try"
	if !when.IsZero() {
		tried += ", " + w.ago(when)
	}
	object := w.attachmentRef()
	secret, space := "Secret "+w.Secret.Namespace+"/"+w.Secret.Name, "namespace "+w.Secret.Namespace
	if w.Secret.Name == "" { // the volume that names it was not read
		secret, space = object, "its namespace"
	}
	// The words are those of the hub and of its API client, at the beginning of the text:
	// what a driver says stands behind "rpc error".
	switch {
	case w.repeats(text):
	case code != codes.OK:
		if m := callError.FindStringSubmatch(text); m != nil {
			text = m[2]
		}
		w.stop(BackendError, "driver "+w.Driver, fmt.Sprintf("it answered %s to %s %s: %s", code, w.method(), tried, text), w.adviceOn(fmt.Sprintf("rpc error: code = %s desc = ", code)))
	case strings.HasPrefix(text, "read secret ") && strings.Contains(text, "forbidden"):
		w.stop(SecretForbidden, secret, tried+" the attacher was not allowed to read it: "+text, "give the hub's ServiceAccount a Role with get on secrets in "+space)
	case strings.HasPrefix(text, "read secret ") && w.Secret.Object.Value() != nil:
		w.later(SecretMissing, secret, tried+" it could not be read, now it is there: "+text, "wait for the next try")
	case strings.HasPrefix(text, "read secret "):
		w.stop(SecretMissing, secret, tried+" it could not be read: "+text, w.adviceOn(text))
	case strings.HasPrefix(text, "the driver is not connected"):
		w.stop(CannotConnect, "driver "+w.Driver, tried+": "+text, "check the driver's controller and where the hub looks for it")
	case w.report.Stop != nil:
		w.note(LastError, object, tried+": "+text, "")
	default:
		w.stop(LastError, object, tried+": "+text, w.adviceOn(text))
	}
}

// told says that it stops for one of these.
func (w *walk) told(verdicts ...Verdict) bool {
	return w.report.Stop != nil && slices.Contains(verdicts, w.report.Stop.Verdict)
}

// repeats says that an error is only what the objects have told already.
func (w *walk) repeats(text string) bool {
	switch {
	case strings.HasPrefix(text, "csinode "):
		return w.told(NodeWithoutDriver, NodeWithoutCSI, NodeMissing)
	case strings.HasPrefix(text, "persistentvolume "):
		return w.told(VolumeMissing, VolumeBeingDeleted, VolumeNotCSI)
	case strings.HasPrefix(text, "read secret "):
		return w.told(SecretMissing) && !strings.Contains(text, "forbidden")
	}
	return false
}

// method is the call that is wanted.
func (w *walk) method() string {
	if w.Attachment.Value().DeletionTimestamp != nil {
		return "ControllerUnpublishVolume"
	}
	return "ControllerPublishVolume"
}

// adviceOn is what the hub's own page advises for an error.
func (w *walk) adviceOn(text string) string {
	advice := status.Advise(status.Case{
		Attachment: status.Attachment{Name: w.Attachment.Value().Name, Node: w.NodeName, PersistentVolume: w.VolumeName, State: status.Failing, LastError: text},
		Driver:     &status.Driver{Name: w.Driver, Up: true, State: "Ready", Mode: "active"},
		Now:        w.Now,
	})
	if len(advice.Do) == 0 {
		return ""
	}
	return advice.Do[0]
}

// progress says what the hub does about it at the moment.
func (w *walk) progress(a *status.Attachment) {
	object := w.attachmentRef()
	if a.Tries > 0 {
		fact := fmt.Sprintf("%d tries in a row have failed", a.Tries)
		if a.Tries == 1 {
			fact = "one try has failed"
		}
		switch wait := a.NextTry.Sub(w.Now).Round(time.Second); {
		case a.NextTry.IsZero():
		case wait > 0:
			fact += ", the next one is in " + duration.HumanDuration(wait)
		default:
			fact += ", the next one is about to begin"
		}
		w.note(Retrying, object, fact, "")
	}
	switch {
	case a.State == status.Attaching || a.State == status.Detaching:
		next := "wait; a call that lasts long is the driver's: look at the log of its controller"
		if d := w.Served; d != nil && d.Settings.Timeout > 0 {
			next = fmt.Sprintf("wait; the call may take up to %s (timeout). If it does, look at the log of the driver's controller", d.Settings.Timeout)
		}
		w.stop(CallInFlight, object, "the hub is at it now", next)
	case a.WaitsFor != "" && w.report.Stop == nil && len(w.lastResorts) == 0:
		fact := "it " + a.Waits()
		if d := w.Served; d != nil {
			fact += fmt.Sprintf("; %d of %d calls of the driver are in flight", d.Busy, d.Workers)
		}
		w.stop(Queued, object, fact, "wait; if calls take long, look at the log of the driver's controller, or raise workers if it can do more at once")
	}
}
