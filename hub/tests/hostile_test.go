package tests

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	eventrecord "k8s.io/client-go/tools/record"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// hostileErrors are what a driver may answer, by what is odd about it.
var hostileErrors = map[string]fakecsi.Fault{
	"64k":       {Code: codes.Internal, Message: strings.Repeat("x", 64<<10)},
	"64k-wide":  {Code: codes.Internal, Message: strings.Repeat("ü\u2028\U0001f4a5", 8<<10)},
	"control":   {Code: codes.Aborted, Message: "a\x00b\x1b[2J\x1b]0;c\x07\r\n\td\x7f\u009b"},
	"no-utf8":   {Code: codes.Internal, Message: "\xff\xfe a \xc3( \xed\xa0\x80 \xf0\x9f"},
	"bidi":      {Code: codes.NotFound, Message: "\u202egnorw\u2066"},
	"markup":    {Code: codes.Internal, Message: `{"a":"</script>'%s%n","b":` + "`$(reboot)`" + `}`},
	"nothing":   {Code: codes.Internal, Message: "\x00"},
	"code-77":   {Code: 77, Message: "code 77"},
	"code-31":   {Code: 1<<31 - 1, Message: "the largest code"},
	"code-32":   {Code: 1<<32 - 1, Message: "minus one"},
	"code-sign": {Code: 1 << 31, Message: "the smallest code"},
}

// checkShown checks a text as it is stored and shown: bounded, in UTF-8, nothing that a
// terminal would act on.
func checkShown(t *testing.T, what, text string, limit int) {
	t.Helper()
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	if text == "" || len(text) > limit || !utf8.ValidString(text) || strings.ContainsFunc(text, control) {
		t.Errorf("%s is %d bytes, at most %d are allowed: %.200q", what, len(text), limit, text)
	}
}

// recordEvents lets the hub record Events at the API server.
func (w *world) recordEvents() {
	broadcaster := eventrecord.NewBroadcaster()
	w.t.Cleanup(broadcaster.Shutdown)
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: w.kube.CoreV1().Events("")})
	w.options.Events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: w.name("hub")})
}

// eventOf waits for an Event of this test's hub on a VolumeAttachment.
func (w *world) eventOf(va, reason string) (event corev1.Event) {
	w.t.Helper()
	w.poll("an Event "+reason+" on "+va, func() (bool, any) {
		list, err := w.kube.CoreV1().Events("default").List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + va})
		if err != nil {
			w.t.Fatal(err)
		}
		i := slices.IndexFunc(list.Items, func(e corev1.Event) bool { return e.Reason == reason })
		if i >= 0 {
			event = list.Items[i]
		}
		return i >= 0, len(list.Items)
	})
	return event
}

func TestWhateverADriverAnswersIsWrittenAndShown(t *testing.T) {
	w := newWorld(t)
	w.recordEvents()
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) {
		s.Retry = registry.Retry{Initial: 10 * time.Millisecond, Max: 50 * time.Millisecond}
	})
	node := w.node("n", driver)
	var all []testbed.Object
	var names []string
	faults := func(method fakecsi.Method) (f []fakecsi.Fault) {
		for name, fault := range hostileErrors {
			fault.Method, fault.Volume = method, name
			f = append(f, fault)
		}
		return f
	}
	for name := range hostileErrors {
		va := w.volume(name, driver, node)
		all, names = append(all, va), append(names, va.Name)
	}
	w.setKnobs(backend, fakecsi.Knobs{Fail: faults(publish)})
	w.start()
	w.create(all...)
	for _, name := range names {
		e := w.waitAttachError(testbed.VolumeAttachment{Name: name}).Status.AttachError
		checkShown(t, name+": attachError", e.Message, 1024)
		if e.ErrorCode == nil || *e.ErrorCode <= 0 {
			t.Errorf("%s: error code %v", name, e.ErrorCode)
		}
		checkShown(t, name+": Event", w.eventOf(name, "AttachFailed").Message, 1024)
	}
	for _, a := range w.hub.Attachments(status.AttachmentFilter{Driver: driver}) {
		checkShown(t, a.Name+": last error", a.LastError, csiclient.MaxText)
	}
	for _, f := range w.hub.Drivers()[0].Failures {
		checkShown(t, "failure", f.Text, csiclient.MaxText)
	}
	w.setKnobs(backend, fakecsi.Knobs{ClearFaults: true})
	w.waitAllAttached(len(names))
	w.setKnobs(backend, fakecsi.Knobs{Fail: faults(unpublish)})
	w.delete(all...)
	for _, name := range names {
		va := w.waitForOne(name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.DetachError != nil })
		checkShown(t, name+": detachError", va.Status.DetachError.Message, 1024)
	}
	w.setKnobs(backend, healed)
	w.waitNoneLeft()
	w.checkBooks(nil)
	for _, line := range strings.Split(w.logged(), "\n") {
		if len(line) > 3*csiclient.MaxText || strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }) {
			t.Errorf("logged %d bytes: %.200q", len(line), line)
		}
	}
}

func TestPublishContextThatIsTooLargeIsAClearErrorAndLosesNothing(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) {
		s.Retry = registry.Retry{Initial: 100 * time.Millisecond, Max: time.Second}
	})
	w.setKnobs(backend, fakecsi.Knobs{PublishContext: map[string]string{"k": strings.Repeat("secret-word", 25<<10)}})
	node := w.node("n", driver)
	fixed, left := w.volume("fixed", driver, node), w.volume("left", driver, node)
	w.start()
	w.create(fixed, left)
	for _, va := range []testbed.VolumeAttachment{fixed, left} {
		got := w.waitAttachError(va)
		if text := got.Status.AttachError.Message; !strings.Contains(text, "larger than max") {
			t.Errorf("%s: error %q, want %q in it", va.Name, text, "larger than max")
		}
		checkShown(t, va.Name, got.Status.AttachError.Message, 1024)
		if got.Status.Attached || !hasOwnFinalizer(got, driver) {
			t.Errorf("%s: attached %t, finalizers %v", va.Name, got.Status.Attached, got.Finalizers)
		}
	}
	w.delete(left) // what was published is unpublished
	w.waitFor("one left", func(all []*storagev1.VolumeAttachment) bool { return len(all) == 1 })
	w.checkBooks(map[string]int{driver: 1})
	w.setKnobs(backend, fakecsi.Knobs{PublishContext: map[string]string{"": "", "a/b.c~1 ü\x00": "\u2028"}})
	if va := w.waitAttached(fixed); va.Status.AttachmentMetadata["a/b.c~1 ü\x00"] != "\u2028" || va.Status.AttachError != nil {
		t.Errorf("status %+v", va.Status)
	}
	w.delete(fixed)
	w.waitNoneLeft()
	w.checkBooks(nil)
	if strings.Contains(w.logged(), "secret-word") {
		t.Error("the publish context is in the log")
	}
}

func TestOddVolumeAttachmentsAreAttachedOrSayWhyNot(t *testing.T) {
	w := newWorld(t)
	w.recordEvents()
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) {
		s.Retry = registry.Retry{Initial: 10 * time.Millisecond, Max: 50 * time.Millisecond}
	})
	node, nodeID := w.name("n"), strings.Repeat("ü/\u2028", 30)
	w.create(testbed.CSINode{Node: node, Drivers: map[string]string{driver: nodeID}})
	longest := w.name("longest") + "." + strings.Repeat("x", 200)
	longest = longest[:min(len(longest), 253)] + strings.Repeat("x", max(0, 253-len(longest)))
	bare := testbed.PersistentVolume{Driver: driver, Handle: "bare"}.Inline()
	bare.VolumeMode, bare.CSI.FSType = nil, ""
	hostPath := testbed.PersistentVolume{Name: w.name("hostpath"), Driver: driver}.Build()
	hostPath.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
	if _, err := w.kube.CoreV1().PersistentVolumes().Create(w.ctx, hostPath, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.start()
	published := 0
	for _, tc := range []struct {
		name, handle string // handle of a PersistentVolume of that name; "" for none
		inline       *corev1.PersistentVolumeSpec
		want         string // of the error; "" for none
	}{
		{name: longest, handle: "longest"},
		{name: w.name("unicode"), handle: "ü/../\u202e\n\t'\"{}$(x)"},
		{name: w.name("64k"), handle: strings.Repeat("h", 64<<10)},
		{name: w.name("300k"), handle: strings.Repeat("h", 300<<10), want: "annotations"},
		{name: w.name("bare"), inline: bare},
		{name: w.name("modeless"), inline: testbed.PersistentVolume{Driver: driver, Handle: "modeless"}.Inline()},
		{name: hostPath.Name, want: "neither a CSI volume"},
		{name: w.name("gone"), want: "not found"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			va := testbed.VolumeAttachment{Name: tc.name, Driver: driver, Node: node, Inline: tc.inline}
			if tc.inline == nil {
				va.PersistentVolume = tc.name
			}
			if tc.handle != "" {
				w.create(testbed.PersistentVolume{Name: tc.name, Driver: driver, Handle: tc.handle})
			}
			w.create(va)
			got := w.waitForOne(tc.name, "attached or with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.Attached || va.Status.AttachError != nil })
			switch e := got.Status.AttachError; {
			case tc.want != "" && (e == nil || !strings.Contains(e.Message, tc.want)):
				t.Errorf("error %+v, want %q", e, tc.want)
			case tc.want != "":
				checkShown(t, "the error", e.Message, 1024)
				w.eventOf(tc.name, "AttachFailed")
			case e != nil || got.Annotations[attach.AnnotationNodeID] != nodeID:
				t.Errorf("error %+v, annotations %v", e, got.Annotations)
			default:
				published++
			}
			w.delete(va)
			w.waitNoneLeft()
		})
	}
	w.checkBooks(nil)
	if calls := backend.Books().Methods[publish].Begun; calls != published {
		t.Errorf("%d volumes were published, want %d", calls, published)
	}
	t.Run("with the longest name an Event is recorded", func(t *testing.T) {
		w.setKnobs(backend, failingOnce(publish, codes.Internal))
		va := testbed.VolumeAttachment{Name: longest, Driver: driver, Node: node, PersistentVolume: longest}
		w.create(va)
		w.eventOf(longest, "AttachFailed")
		w.delete(va)
		w.waitNoneLeft()
	})
	t.Run("the API server takes none without an attacher or a source", func(t *testing.T) {
		for _, va := range []testbed.VolumeAttachment{{Name: w.name("x"), Node: node, PersistentVolume: "v"}, {Name: w.name("x"), Driver: driver, Node: node},
			{Name: w.name("x"), Driver: driver, Node: node, PersistentVolume: "v", Inline: bare}, {Name: w.name("x"), Driver: strings.Repeat("x", 64), Node: node, PersistentVolume: "v"},
			{Name: w.name("x"), Driver: driver, Node: "../x", PersistentVolume: "v"}} {
			if err := w.cluster.Create(w.ctx, va); !apierrors.IsInvalid(err) {
				t.Errorf("%+v: got %v", va, err)
			}
		}
	})
}

// What stands on a VolumeAttachment before it is attached may be anybody's.
func TestAnnotationsThatWereThereBeforeAreNotBelieved(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.withNode("v")
		v.start()
		va := v.attachment("v", "n").Build()
		va.Annotations = map[string]string{attach.AnnotationNodeID: "\u202ewrong", attach.AnnotationVolumeHandle: "wrong", "somebody/else": strings.Repeat("~1/", 50<<10)}
		v.write(va)
		v.pass(time.Second)
		v.wantAttachedAs("id-n")
		if got := v.get(va.Name).Annotations; got[attach.AnnotationVolumeHandle] != "v" || got["somebody/else"] != va.Annotations["somebody/else"] {
			t.Errorf("annotations %.300v", got)
		}
		v.delete(v.attachment("v", "n"))
		v.pass(time.Second)
		v.wantGone(va.Name)
		v.wantCalls("v", "publish id-n", "unpublish id-n")
	})
}
