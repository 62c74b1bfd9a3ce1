package explain_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
)

// mustAsk answers a question about a world that can be asked.
func (w *world) mustAsk(t *testing.T, question string) explain.Report {
	t.Helper()
	r, err := w.asked(t, question)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Texts of whole reports, as a terminal shows them.
func TestReportsReadWell(t *testing.T) {
	full := all(fails("rpc error: code = ResourceExhausted desc = attachment limit of instance i-0a1 exceeded"), func(w *world) {
		w.seen.State, w.seen.Tries, w.seen.NextTry = status.Failing, 7, time.Now().Add(7*time.Second)
	})
	for name, tt := range map[string]struct {
		question string
		change   func(*world)
	}{
		"failing": {byPod, full},
		"hanging": {byVA, all(full, func(w *world) {
			w.seen.State, w.seen.Call = status.Attaching, status.Call{Method: "ControllerPublishVolume", Since: time.Now().Add(-66 * time.Second)}
			w.served.Settings.Timeout = metav1.Duration{Duration: 2 * time.Minute}
		})},
		"attached":  {byVA, attached},
		"not-found": {"csi-7", func(*world) {}},
		"no-hub":    {byVA, noHub},
		"driver": {"driver/" + driverName, func(w *world) {
			driverState("Lost", "dial unix /csi/x.sock: connect: connection refused", false)(w)
			w.served.DownSince, w.served.Source = time.Now().Add(-8*time.Minute-12*time.Second), "drivers.yaml:3"
			w.served.Lanes = []status.Lane{{Operation: status.Attach, Queued: 2, Stuck: 1, StuckSince: time.Now().Add(-20 * time.Minute), OldestSince: time.Now().Add(-20 * time.Minute)}}
			w.served.Checklist = []status.Check{{Name: "endpoint", Text: "nothing answers", Actions: []string{"Start it."}}, {Name: "rights", OK: true, Text: "the hub has all that it needs"}}
			w.stuck("csi-a", "no path")
		}},
		"driver-unserved": {"driver/" + driverName, func(w *world) {
			w.served = nil
			w.volume("csi-a", time.Hour, status.Attachment{State: status.Unserved, Operation: status.Attach})
		}},
		"node": {"node/node-1", func(w *world) { w.stuck("csi-a", "no path") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				tt.change(w)
				golden(t, name, w.mustAsk(t, tt.question).Text(statustable.Style{}, true))
			})
		})
	}
}

func TestFindingsBesideTheStopAreNotes(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*world)
		want   []diagnosis.Verdict
		words  string // in the text
	}{
		"attached":                       {attached, nil, ""},
		"attached, and the node is gone": {all(attached, func(w *world) { w.node = nil }), []diagnosis.Verdict{diagnosis.NodeMissing}, ""},
		"attached, and its socket is gone": {all(attached, driverIs(func(d *status.Driver) {
			d.Fault = diagnosis.New(diagnosis.SocketMissing, "driver x", "its socket is gone", "")
		})), []diagnosis.Verdict{diagnosis.SocketMissing}, ""},
		"attached, and needs no attach":            {noAttach, nil, ""},
		"attached, by a driver at another's place": {all(attached, driverIs(func(d *status.Driver) { d.RecordedCalls = 2 })), []diagnosis.Verdict{diagnosis.CapabilityMissing}, ""},
		"attached to a node that is not ready": {all(attached, func(w *world) {
			w.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "kubelet stopped"}}
		}), []diagnosis.Verdict{diagnosis.NodeNotReady}, "kubelet stopped"},
		"being detached, and kept by another": {all(leaving, func(w *world) { w.va.Finalizers = append(w.va.Finalizers, "example.com/keep") }), nil, "example.com/keep"},
		"much at once": {func(w *world) {
			w.va.CreationTimestamp, w.csiNode = ago(20*time.Minute), nil
			w.seen.Since, w.seen.State, w.seen.Tries, w.seen.NextTry, w.seen.LastError = w.va.CreationTimestamp.Time, status.Stuck, 5, time.Now().Add(40*time.Second), "rpc error: code = Internal desc = broken"
			w.served.ForeignWriter = status.ForeignWriter{Manager: "csi-attacher", Time: time.Now().Add(-time.Minute), VolumeAttachment: "x"}
			w.served.RecordedCalls = 2
		}, []diagnosis.Verdict{diagnosis.ForeignWriter, diagnosis.NodeWithoutCSI, diagnosis.BackendError, diagnosis.Retrying, diagnosis.Stuck},
			"5 tries in a row have failed: the next one is in 40s"},
		// An error that repeats the stop is no note.
		"not called, twice":                 {all(fails("the driver has no PUBLISH_UNPUBLISH_VOLUME"), driverIs(func(d *status.Driver) { d.RecordedCalls = 2 })), nil, ""},
		"node gone, twice":                  {all(fails(`csinode "node-1" not found: the node is gone`), func(w *world) { w.csiNode, w.node = nil, nil }), nil, ""},
		"driver not there, twice":           {all(fails(`csinode "node-1" does not contain driver "x": the driver's node plugin is not up`), func(w *world) { w.csiNode.Spec.Drivers = nil }), nil, ""},
		"cannot be called, twice":           {all(fails("the driver is not connected: refused"), driverState("Lost", "connection refused", false)), nil, ""},
		"call in flight, and failed before": {func(w *world) { failing(w); w.seen.State, w.seen.Tries = status.Attaching, 0 }, nil, "answered Internal"},
		"waits for a worker, fine":          {func(w *world) { w.seen.Waiting = status.Wait{Kind: status.WaitForWorker} }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				tt.change(w)
				r := w.mustAsk(t, byVA)
				var got []diagnosis.Verdict
				for _, n := range r.Volumes[0].Notes {
					got = append(got, n.Verdict)
				}
				if !slices.Equal(got, tt.want) || !strings.Contains(r.Text(statustable.Style{}, true), tt.words) {
					t.Errorf("noted %v, want %v and %q:\n%s", got, tt.want, tt.words, r.Text(statustable.Style{}, true))
				}
			})
		})
	}
}

func TestOneVolumeOfAPodThatWaitsMakesItWait(t *testing.T) {
	w := newWorld()
	attached(w)
	claim, pv := w.claim.DeepCopy(), w.pv.DeepCopy()
	claim.Name, claim.UID, claim.Spec.VolumeName = "more", "more-uid", "pv-2"
	pv.Name, pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = "pv-2", "more", "more-uid"
	w.pod.Spec.Volumes = append(w.pod.Spec.Volumes, corev1.Volume{Name: "more", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "more"}}})
	w.more = append(w.more, claim, pv)
	r := w.mustAsk(t, byPod)
	if r.Result != explain.Waiting || len(r.Volumes) != 2 || r.Volumes[0].Result != explain.Waiting || r.Volumes[1].Result != explain.Attached {
		t.Errorf("want waiting of waiting and attached:\n%s", r.Text(statustable.Style{}, true))
	}
}

// Each kind of object in turn may not be read. Whatever the report then says, it does not say that one is missing.
func TestAnObjectThatWasNotReadIsNeverCalledMissing(t *testing.T) {
	for name, change := range map[string]func(*world){"attaching": func(*world) {}, "detaching": leaving, "no hub": noHub, "not asked": notAsked} {
		for _, kind := range kinds {
			for _, way := range ways {
				w := newWorld()
				change(w)
				w.forbidden = []string{kind.resource}
				r, err := w.asked(t, way)
				gone := r.Result == explain.NotFound && name == "not asked" && way == byVA && kind.resource != "volumeattachments"
				if text := r.Text(statustable.Style{}, true); err == nil && !gone && (strings.Contains(text, "does not exist") || kind.resource == "volumeattachments" && strings.Contains(text, "has no VolumeAttachment")) {
					t.Errorf("%s, %s not read, explain %s:\n%s", name, kind.resource, way, text)
				}
			}
		}
	}
}

func TestWhatCouldNotBeReadIsSaidOnce(t *testing.T) {
	w := newWorld()
	noHub(w)
	w.more = append(w.more, attachmentOf("csi-2", "pv-1", "node-2"))
	w.forbidden = []string{"leases", "csidrivers"}
	r := w.mustAsk(t, byPV)
	if len(r.Volumes) != 2 || len(r.Unknown) != 3 {
		t.Errorf("%d things are not known, want 3: %q", len(r.Unknown), r.Unknown)
	}
	for _, word := range []string{"connection refused", "queues", "leases is forbidden", "csidrivers is forbidden"} {
		if text := r.Text(statustable.Style{}, true); !strings.Contains(text, word) {
			t.Errorf("%q is not in:\n%s", word, text)
		}
	}
}

func TestAHostileErrorNeitherActsOnTheTerminalNorLooksLikeAnotherLine(t *testing.T) {
	w := newWorld()
	fails("rpc error: code = Internal desc = \x1b[2J\x1b]0;title\x07\n  ok    all is well\u202e\u009b31m")(w)
	text := w.mustAsk(t, byVA).Text(statustable.Style{}, true)
	for _, r := range text {
		if r != '\n' && !unicode.IsGraphic(r) {
			t.Errorf("%q is in %q", r, text)
		}
	}
	if strings.Contains(text, "\n  ok    all is well") {
		t.Errorf("an error made a line of its own:\n%s", text)
	}
}

func TestATerminalGetsColoursAndWrappedLinesAndFoldsWhatIsInOrder(t *testing.T) {
	w, name := newWorld(), "csi-"+strings.Repeat("0123456789abcdef", 3) // which fits into one line, alone
	w.va.Name, w.seen.Name = name, name
	failing(w)
	text := w.mustAsk(t, byPV).Text(statustable.Style{Width: 70, Color: true}, false)
	for _, want := range []string{"VolumeAttachment\n         " + name, "\x1b[1;31mPROBLEM\x1b[0m  driver", "\n         -> Look at", "\x1b[32mok\x1b[0m       all else: -v shows it\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for line := range strings.Lines(regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(text, "")) {
		if len(line) > 71 {
			t.Errorf("%q is too long", line)
		}
	}
}

func TestParseQuestion(t *testing.T) {
	for text, want := range map[string]explain.Question{
		"driver/a":             {Kind: explain.Driver, Name: "a"},
		"node/a":               {Kind: explain.Node, Name: "a"},
		"node/":                {},
		"csi-1":                {Namespace: "team", Name: "csi-1"},
		"va/csi-1":             {Kind: explain.VolumeAttachment, Name: "csi-1"},
		"pv/a":                 {Kind: explain.PersistentVolume, Name: "a"},
		"persistentvolume/a":   {Kind: explain.PersistentVolume, Name: "a"},
		"pvc/ns/a":             {Kind: explain.PersistentVolumeClaim, Namespace: "ns", Name: "a"},
		"pod/ns/a":             {Kind: explain.Pod, Namespace: "ns", Name: "a"},
		"PODS/ns/a":            {Kind: explain.Pod, Namespace: "ns", Name: "a"},
		"":                     {},
		"pod/a":                {Kind: explain.Pod, Namespace: "team", Name: "a"},
		"pvc/a":                {Kind: explain.PersistentVolumeClaim, Namespace: "team", Name: "a"},
		"pod/":                 {},
		"pod/ns/":              {},
		"pvc//a":               {},
		"pv/":                  {},
		"pv/a/b":               {},
		"pod/a/b/c":            {},
		"secret/a":             {},
		"volumeattachment/a/b": {},
	} {
		got, err := explain.ParseQuestion(text, "team")
		if got != want || (err == nil) != (want != explain.Question{}) {
			t.Errorf("ParseQuestion(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestANameIsEnoughIfOnlyOneObjectHasIt(t *testing.T) {
	for asked, want := range map[string]string{
		"web": "Pod default/web, volume data, claim default/data, PersistentVolume pv-1 of driver csi.example.com on node node-1: waiting", "pv-1": "PersistentVolume pv-1, claim default/data of driver csi.example.com on node node-1: waiting", "data": "PersistentVolumeClaim default/data, PersistentVolume pv-1 of driver csi.example.com on node node-1: waiting",
		"node-1": "Node node-1: fine", driverName: "driver " + driverName + ": fine", "csi-1": "VolumeAttachment csi-1, claim default/data, PersistentVolume pv-1 of driver csi.example.com on node node-1: waiting",
		"csi-2": "VolumeAttachment csi-2222, PersistentVolume pv-2 of driver csi.example.com on node node-1: waiting", "va/csi-22": "VolumeAttachment csi-2222, PersistentVolume pv-2 of driver csi.example.com on node node-1: waiting", "csi-3": "csi-3: not found",
		"csi-":    "csi-: not unique\nPROBLEM  could be 2 objects: VolumeAttachment csi-1, VolumeAttachment csi-2222",
		"node":    "node: not found\nPROBLEM  does not exist",
		"both":    "both: not unique\nPROBLEM  could be 2 objects: Node both, Pod default/both",
		"va/both": "VolumeAttachment both: not found",
	} {
		w := newWorld()
		w.more = append(w.more, attachmentOf("csi-2222", "pv-2", "node-1"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "both"}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "both"}})
		if got := w.mustAsk(t, asked).Text(statustable.Style{}, true); !strings.HasPrefix(got, want) {
			t.Errorf("explain %s says\n%s\nwant %s", asked, got, want)
		}
	}
}

// page is what the hub says about csi-1.
func (w *world) page(t *testing.T) []diagnosis.Diagnosis {
	if w.seen == nil || w.hubErr != nil {
		return nil
	}
	in := status.DiagnosisInput{Attachment: *w.seen, Replicas: w.View(t.Context()).Members(), Now: time.Now()}
	if w.served != nil {
		in.Driver = &w.served.Driver
	}
	return status.Diagnose(in)
}

// isOfTheHub says whether the hub says the same: its own tests have the text.
func (w *world) isOfTheHub(t *testing.T, stop diagnosis.Diagnosis) bool {
	return slices.ContainsFunc(w.page(t), func(d diagnosis.Diagnosis) bool { return d.Text(time.Now()) == stop.Text(time.Now()) })
}

// Who has read one and looks at the other must not find a second cause.
func TestExplainStopsWithTheWordsOfTheStatusPage(t *testing.T) {
	lastError := func(text string) func(*world) { return func(w *world) { w.seen.LastError = text } }
	for name, change := range map[string]func(*world){
		"cannot be called":               driverState("Lost", "dial tcp 10.0.0.1:9443: connect: connection refused", false),
		"another driver":                 driverState("NameMismatch", `reports the name "other"`, false),
		"paused":                         driverIs(func(d *status.Driver) { d.Mode, d.State = "paused", "Paused" }),
		"draining":                       driverState("Draining", "2 calls in flight", true),
		"waits for a detach":             func(w *world) { w.seen.Waiting = status.Wait{Kind: status.WaitForDetach, Node: "node-3"} },
		"waits for a worker":             func(w *world) { w.seen.Waiting = status.Wait{Kind: status.WaitForWorker} },
		"call in flight":                 func(w *world) { w.seen.State = status.Attaching },
		"a webhook that does not answer": lastError(`add finalizer to persistentvolume: Internal error occurred: failed calling webhook "guard.example.com": no endpoints`),
		"a policy that refuses":          lastError(`admission webhook "guard.example.com" denied the request: not on Fridays`),
		"too many requests":              lastError("the server has received too many requests and has asked us to try again later"),
		"an error without a name":        lastError("odd"),
		"the driver's error":             lastError("rpc error: code = Internal desc = broken"),
		"published elsewhere":            storageSays(status.DanglingPublication{FromList: true, ReportOnly: true}),
		"not configured":                 func(w *world) { w.served, w.lease = nil, nil },
		"a call that hangs": func(w *world) {
			w.seen.State, w.seen.LastError = status.Attaching, "context canceled"
			w.seen.Call = status.Call{Method: "ControllerPublishVolume", Since: time.Now().Add(-8 * time.Minute)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.seen.Node, w.seen.PersistentVolume = "node-1", "pv-1"
				change(w)
				page := w.page(t)[0]
				stop := *w.mustAsk(t, byVA).Volumes[0].Stop
				if stop.Verdict != page.Verdict || stop.Object != page.Object || stop.Text(time.Now()) != page.Text(time.Now()) || strings.Join(stop.Actions, " ") != strings.Join(page.Actions, " ") {
					t.Errorf("explain says %+v, the page %+v", stop, page)
				}
			})
		})
	}
}

// status, page and metrics show a driver's health. explain driver/NAME says the same, in the same order.
func TestExplainGivesTheReasonsOfADriversHealth(t *testing.T) {
	for name, change := range map[string]func(*status.Driver){
		"ready": func(*status.Driver) {},
		"hangs": func(d *status.Driver) {
			d.UnansweredSince, d.Lanes = time.Now().Add(-9*time.Minute), []status.Lane{{Operation: status.Attach, Running: 3, OldestCall: status.Call{Method: "ControllerPublishVolume", Since: time.Now().Add(-8 * time.Minute)}}}
		},
		"stuck and failing": func(d *status.Driver) {
			d.Lanes = []status.Lane{{Operation: status.Attach, Stuck: 1, StuckSince: time.Now().Add(-time.Hour), Delayed: 2, Failing: 2, FailingSince: time.Now().Add(-time.Hour), OldestSince: time.Now().Add(-time.Hour)}}
			d.Failures = []status.Failure{{Text: "array busy"}}
		},
		"observed, and nobody holds the lease": func(d *status.Driver) { d.Mode, d.Lease.Mine, d.Lease.Holder = "observe", false, "" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				change(&w.served.Driver)
				want := w.View(t.Context()).Drivers[0].Health
				r := w.mustAsk(t, "driver/"+driverName)
				if string(r.Result) != string(want.State) || !r.Subject.Since.Equal(want.Since) || len(r.Subject.Reasons) != len(want.Reasons) || (r.ExitCode() == 1) != want.Needs() {
					t.Fatalf("explain says %s, the hub %+v:\n%s", r.Result, want, r.Text(statustable.Style{}, true))
				}
				for i, reason := range want.Reasons {
					if got := r.Subject.Reasons[i]; got.State != reason.State || got.Verdict != reason.Verdict || got.Text(time.Now()) != reason.Text(time.Now()) || !slices.Equal(got.Actions, reason.Actions) {
						t.Errorf("explain says %+v, the hub %+v", got, reason)
					}
				}
			})
		})
	}
}

func TestAnOpenCheckIsNoSuccess(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*world)
		code   int
	}{
		"open":     {func(w *world) { w.served.Checklist = []status.Check{{Name: "rights", Text: "one lacks"}} }, 1},
		"not read": {func(w *world) { w.checksErr = errNoHub }, 3},
		"fine":     {func(w *world) { w.served.Checklist = []status.Check{{Name: "rights", OK: true}} }, 0},
	} {
		w := newWorld()
		tt.change(w)
		if r := w.mustAsk(t, "driver/"+driverName); r.ExitCode() != tt.code {
			t.Errorf("%s: exit code %d, want %d:\n%s", name, r.ExitCode(), tt.code, r.Text(statustable.Style{}, true))
		}
	}
}

const replaceCSIDriver = `kubectl get csidriver csi.example.com -o json | kubectl patch --local -f - --type=merge -p '{"spec":{"attachRequired":true}}' -o json | kubectl replace --force -f -`

// notReady has the volume on node-2, which is not ready.
func notReady(taints ...corev1.Taint) func(*world) {
	return all(elsewhere, func(w *world) {
		w.more = append(w.more, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}, Spec: corev1.NodeSpec{Taints: taints}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: ago(time.Minute)}}}})
	})
}

// waitsWithoutAttach has the driver's CSIDriver forbid an attach that the driver offers, and the Pod wait on the node.
func waitsWithoutAttach(change func(*corev1.Pod)) func(*world) {
	return all(notAsked, noAttach, func(w *world) {
		w.served.NoAttach = true
		w.pod.Status.Phase = corev1.PodPending
		change(w.pod)
	})
}

func TestCommandsAreThoseThatTheObjectsAllow(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(*world)
		want     diagnosis.Verdict // empty: attached
		next     string            // in what to do, "|" between several
		commands string
	}{
		{"a Pod is bound to a node that is gone", func(w *world) {
			w.csiNode, w.node = nil, nil
			other := w.pod.DeepCopy()
			other.Name, other.Spec.NodeName = "other", "node-3"
			w.more = append(w.more, other)
		}, diagnosis.NodeMissing, "", "kubectl -n default delete pod web --wait=false\nkubectl delete volumeattachment csi-1"},
		{"a secret is missing", needsSecret, diagnosis.SecretMissing, "FILE has its keys", "kubectl -n default create secret generic creds --from-env-file=FILE"},
		{"a secret is missing in another cluster", all(needsSecret, func(w *world) { w.access = []string{"--context=my prod", "--kubeconfig=/k"} }), diagnosis.SecretMissing, "",
			"kubectl '--context=my prod' --kubeconfig=/k -n default create secret generic creds --from-env-file=FILE"},
		{"a secret is missing in a cluster with a hostile name", all(needsSecret, func(w *world) { w.access = []string{"--context=a\u202eb"} }), diagnosis.SecretMissing, "", ""},
		{"whoever may write a status names a secret of others", fails(`read secret kube-system/root for the call: secrets "root" is forbidden: User "hub" cannot get`), diagnosis.SecretForbidden, "Grant the hub get on the secret,", ""},
		{"a PersistentVolume that is gone is to be detached, and its handle is not known", all(leaving, fails(`persistentvolume "pv-1" not found`), func(w *world) { w.pv = nil }),
			diagnosis.VolumeMissing, "Restore PersistentVolume pv-1 with the same handle.", ""},
		{"the node that has the volume is not ready", notReady(), diagnosis.AttachedToNotReadyNode,
			"Make sure that the machine of node node-2 is off|kubectl taint nodes node-2 node.kubernetes.io/out-of-service-.", "kubectl taint nodes node-2 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"},
		{"the node that has the volume is out of service", notReady(corev1.Taint{Key: corev1.TaintNodeOutOfService}), diagnosis.AttachedToNotReadyNode, "Wait: the node has the taint", ""},
		{"the node that has the volume could not be read", all(notReady(), forbid("nodes")), diagnosis.AttachedElsewhere, "", ""},
		{"another attacher renews the lease", all(waitsForLease(""), sidecar), diagnosis.LeaseHeld, "", ""},
		{"another attacher holds the lease and does not renew it", all(waitsForLease(""), held("sidecar-7", 50*time.Second), func(w *world) { w.lease.Spec.LeaseDurationSeconds = ptr.To[int32](7200) }),
			diagnosis.LeaseHolderGone, "Make sure that its holder is gone", `kubectl -n storage patch lease ` + leaseName + ` --type=json -p '[{"op":"test","path":"/spec/holderIdentity","value":"sidecar-7"},` +
				`{"op":"test","path":"/spec/renewTime","value":"1999-12-31T23:59:10.000000Z"},{"op":"replace","path":"/spec/holderIdentity","value":""}]'`},
		{"another replica holds the lease", all(waitsForLease(""), held("hub-1_def", 50*time.Second), func(w *world) { w.lease.Spec.LeaseDurationSeconds = ptr.To[int32](7200) }), diagnosis.LeaseHeld, "", ""},
		{"a Pod waits for a mount that needs an attach", waitsWithoutAttach(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Controller: ptr.To(true)}}
		}), diagnosis.AttachRequiredWrong, "Create the CSIDriver again", replaceCSIDriver + "\nkubectl -n default delete pod web"},
		{"a Pod without a controller waits for such a mount", waitsWithoutAttach(func(*corev1.Pod) {}), diagnosis.AttachRequiredWrong,
			"Delete Pod default/web and create it again", replaceCSIDriver},
		{"a Pod waits for its image", waitsWithoutAttach(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
		}), "", "", ""},
		{"a Pod runs", waitsWithoutAttach(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }), "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				tt.change(w)
				question := byVA
				if w.va == nil {
					question = byPod
				}
				report := w.mustAsk(t, question)
				stop := report.Volumes[0].Stop
				if tt.want == "" {
					if stop != nil || report.Result != explain.Attached && report.Result != explain.NotNeeded {
						t.Errorf("got %s, %+v; want attached", report.Result, stop)
					}
					return
				}
				if stop == nil || stop.Verdict != tt.want {
					t.Fatalf("got %+v, want %s", stop, tt.want)
				}
				if got := strings.Join(stop.Commands, "\n"); got != tt.commands {
					t.Errorf("the commands are\n%s\nwant\n%s", got, tt.commands)
				}
				for words := range strings.SplitSeq(tt.next, "|") {
					if !strings.Contains(strings.Join(stop.Actions, " "), words) {
						t.Errorf("%q lacks %q", strings.Join(stop.Actions, " "), words)
					}
				}
			})
		})
	}
}

func TestCommandsAreLinesToBeCopied(t *testing.T) {
	w := newWorld()
	reason := func(fact string, commands ...string) status.Reason {
		return status.Reason{State: status.Broken, Diagnosis: diagnosis.Diagnosis{Verdict: diagnosis.DriverPaused, Object: "driver " + driverName, Fact: fact, Actions: []string{"Resume it."}, Commands: commands}}
	}
	w.served.Health = status.Health{State: status.Broken, Reasons: []status.Reason{
		reason("paused", "kubectl annotate x 'two  spaces'", "csi-attach-hub explain driver/x"),
		reason("hostile", "kubectl get hidden", "rm \x1b[2K\u202e hidden"),
	}}
	want := "         -> Resume it.\n            kubectl annotate x 'two  spaces'\n            csi-attach-hub explain driver/x\n"
	if text := w.mustAsk(t, "driver/"+driverName).Text(statustable.Style{}, true); !strings.Contains(text, want) || strings.Contains(text, "hidden") {
		t.Errorf("got\n%s\nwant in it\n%s", text, want)
	}
}

// The PersistentVolume was created again with another handle, which is to be attached to the same node.
func TestTwoVolumeAttachmentsForANodeAreExplainedEachByItsOwnState(t *testing.T) {
	w := newWorld()
	all(attached, faulty(diagnosis.VolumeRecreated, "PersistentVolume pv-1"))(w)
	w.more = append(w.more, attachmentOf("csi-2", "pv-1", "node-1"))
	w.rows = []status.Attachment{{Name: "csi-2", Driver: driverName, State: status.Failing, Operation: status.Attach, LastError: "rpc error: code = Internal desc = broken"}}
	for way, title := range map[string]string{byPV: "claim default/data", byPod: "volume data, claim default/data, PersistentVolume pv-1"} {
		r := w.mustAsk(t, way)
		var got []string
		for _, v := range r.Volumes {
			got = append(got, v.Title+": "+string(v.Result)+" "+string(v.Stop.Verdict))
		}
		title += " of driver csi.example.com by VolumeAttachment "
		want := []string{title + "csi-1 on node node-1: attention VolumeRecreated", title + "csi-2 on node node-1: waiting BackendError"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q\n%s", got, want, r.Text(statustable.Style{}, true))
		}
	}
}
