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
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: w.plane.Clientset().CoreV1().Events("")})
	w.options.Events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: w.name("hub")})
}

// eventOf waits for an Event of this test's hub on a VolumeAttachment.
func (w *world) eventOf(va, reason string) corev1.Event {
	w.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := w.plane.Clientset().CoreV1().Events("default").List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + va})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Reason == reason {
				return e
			}
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("no Event %s on %s among %d", reason, va, len(list.Items))
		}
	}
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
	w.turn(backend, fakecsi.Knobs{Fail: faults(fakecsi.ControllerPublishVolume)})
	updates, h := w.run()
	updates <- w.drivers
	w.create(all...)
	for _, name := range names {
		va := w.waitForOne(name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.AttachError != nil })
		checkShown(t, name+": attachError", va.Status.AttachError.Message, 1024)
		if code := va.Status.AttachError.ErrorCode; code == nil || *code <= 0 {
			t.Errorf("%s: error code %v", name, code)
		}
		checkShown(t, name+": Event", w.eventOf(name, "AttachFailed").Message, 1024)
	}
	for _, a := range h.Attachments(status.AttachmentFilter{Driver: driver}) {
		checkShown(t, a.Name+": last error", a.LastError, csiclient.MaxText)
	}
	for _, d := range h.Drivers() {
		for _, f := range d.Failures {
			checkShown(t, "failure", f.Text, csiclient.MaxText)
		}
	}
	w.turn(backend, fakecsi.Knobs{ClearFaults: true})
	w.waitAllAttached(len(names))
	w.turn(backend, fakecsi.Knobs{Fail: faults(fakecsi.ControllerUnpublishVolume)})
	w.delete(all...)
	for _, name := range names {
		va := w.waitForOne(name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.DetachError != nil })
		checkShown(t, name+": detachError", va.Status.DetachError.Message, 1024)
	}
	w.turn(backend, fakecsi.Knobs{ClearFaults: true})
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
	w.turn(backend, fakecsi.Knobs{PublishContext: map[string]string{"k": strings.Repeat("secret-word", 25<<10)}})
	node := w.node("n", driver)
	fixed, left := w.volume("fixed", driver, node), w.volume("left", driver, node)
	w.start()
	w.create(fixed, left)
	for _, name := range []string{fixed.Name, left.Name} {
		va := w.waitForOne(name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.AttachError != nil })
		if text := va.Status.AttachError.Message; !strings.Contains(text, "larger than max") {
			t.Errorf("%s: error %q, want %q in it", name, text, "larger than max")
		}
		checkShown(t, name, va.Status.AttachError.Message, 1024)
		if va.Status.Attached || !attach.HasFinalizer(va.Finalizers, attach.Finalizer(driver)) {
			t.Errorf("%s: attached %t, finalizers %v", name, va.Status.Attached, va.Finalizers)
		}
	}
	w.delete(left) // what was published is unpublished
	w.waitFor("one left", func(all []*storagev1.VolumeAttachment) bool { return len(all) == 1 })
	if attached := backend.Books().Attached; len(attached) != 1 {
		t.Errorf("attached is %v", attached)
	}
	w.turn(backend, fakecsi.Knobs{PublishContext: map[string]string{"": "", "a/b.c~1 ü\x00": "\u2028"}})
	va := w.waitForOne(fixed.Name, "attached", isAttached)
	if got := va.Status.AttachmentMetadata["a/b.c~1 ü\x00"]; got != "\u2028" || va.Status.AttachError != nil {
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
	node := w.name("n")
	nodeID := strings.Repeat("ü/\u2028", 30)
	w.create(testbed.CSINode{Node: node, Drivers: map[string]string{driver: nodeID}})
	longest := w.name("longest") + "." + strings.Repeat("x", 200)
	longest = longest[:min(len(longest), 253)] + strings.Repeat("x", max(0, 253-len(longest)))

	bare := testbed.PersistentVolume{Driver: driver, Handle: "bare"}.Inline()
	bare.VolumeMode, bare.CSI.FSType = nil, ""
	modeless := testbed.PersistentVolume{Driver: driver, Handle: "modeless"}.Inline()

	hostPath := testbed.PersistentVolume{Name: w.name("hostpath"), Driver: driver}.Build()
	hostPath.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
	if _, err := w.plane.Clientset().CoreV1().PersistentVolumes().Create(w.ctx, hostPath, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	volumes := map[string]string{ // name to handle
		longest: "longest", w.name("unicode"): "ü/../\u202e\n\t'\"{}$(x)", w.name("64k"): strings.Repeat("h", 64<<10), w.name("300k"): strings.Repeat("h", 300<<10),
	}
	for name, handle := range volumes {
		w.create(testbed.PersistentVolume{Name: name, Driver: driver, Handle: handle})
	}
	w.start()
	for _, tc := range []struct {
		name, volume string
		inline       *corev1.PersistentVolumeSpec
		want         string // of the error; "" for none
	}{
		{name: longest, volume: longest},
		{name: w.name("unicode"), volume: w.name("unicode")},
		{name: w.name("64k"), volume: w.name("64k")},
		{name: w.name("300k"), volume: w.name("300k"), want: "annotations"},
		{name: w.name("bare"), inline: bare},
		{name: w.name("modeless"), inline: modeless},
		{name: w.name("hostpath"), volume: hostPath.Name, want: "neither a CSI volume"},
		{name: w.name("gone"), volume: w.name("gone"), want: "not found"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			va := testbed.VolumeAttachment{Name: tc.name, Driver: driver, Node: node, PersistentVolume: tc.volume, Inline: tc.inline}
			w.create(va)
			got := w.waitForOne(tc.name, "attached or with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.Attached || va.Status.AttachError != nil })
			switch e := got.Status.AttachError; {
			case tc.want == "" && e != nil:
				t.Errorf("error %q", e.Message)
			case tc.want != "" && (e == nil || !strings.Contains(e.Message, tc.want)):
				t.Errorf("error %+v, want %q", e, tc.want)
			case tc.want != "":
				checkShown(t, "the error", e.Message, 1024)
				w.eventOf(tc.name, "AttachFailed")
			case got.Annotations[attach.AnnotationNodeID] != nodeID:
				t.Errorf("annotations %v", got.Annotations)
			}
			w.delete(va)
			w.waitNoneLeft()
		})
	}
	w.checkBooks(nil)
	if calls := backend.Books().Methods[fakecsi.ControllerPublishVolume].Begun; calls != 5 {
		t.Errorf("%d volumes were published, want 5", calls)
	}
	t.Run("with the longest name an Event is recorded", func(t *testing.T) {
		w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal, Count: 1}}})
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
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	va := w.volume("v", driver, w.node("n", driver)).Build()
	va.Annotations = map[string]string{attach.AnnotationNodeID: "\u202ewrong", attach.AnnotationVolumeHandle: "wrong", "somebody/else": strings.Repeat("~1/", 50<<10)}
	w.start()
	if _, err := w.plane.Clientset().StorageV1().VolumeAttachments().Create(w.ctx, va, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got := w.waitForOne(va.Name, "attached", isAttached)
	if got.Annotations[attach.AnnotationNodeID] != "id-n" || got.Annotations[attach.AnnotationVolumeHandle] != "v" || got.Annotations["somebody/else"] != va.Annotations["somebody/else"] {
		t.Errorf("annotations %.300v", got.Annotations)
	}
	w.delete(testbed.VolumeAttachment{Name: va.Name})
	w.waitNoneLeft()
	w.checkBooks(nil)
	if requests := backend.Books().Methods; requests[fakecsi.ControllerPublishVolume].Begun != 1 || requests[fakecsi.ControllerUnpublishVolume].Begun != 1 {
		t.Errorf("calls %+v", requests)
	}
}

// A secret of which a driver can be told nothing keeps its volume from being attached, and
// says so; it does not keep the VolumeAttachment.
func TestSecretThatIsNoTextIsNamed(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: w.name("secret")}, Data: map[string][]byte{"key": []byte("hunter22\xff")}}
	if _, err := w.plane.Clientset().CoreV1().Secrets("default").Create(w.ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	va := testbed.VolumeAttachment{Name: w.name("v"), Driver: driver, Node: w.node("n", driver), PersistentVolume: w.name("v")}
	w.create(testbed.PersistentVolume{Name: va.Name, Driver: driver, Secret: &corev1.SecretReference{Namespace: "default", Name: secret.Name}})
	w.start()
	w.create(va)
	got := w.waitForOne(va.Name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.AttachError != nil })
	if text := got.Status.AttachError.Message; !strings.Contains(text, "default/"+secret.Name) || !strings.Contains(text, `"key"`) || strings.Contains(text, "hunter22") {
		t.Errorf("error %q, want secret and key to be named", text)
	}
	w.delete(va)
	w.waitNoneLeft()
	if calls := backend.Books().Methods; calls[fakecsi.ControllerPublishVolume].Begun+calls[fakecsi.ControllerUnpublishVolume].Begun > 0 {
		t.Errorf("the driver was called: %+v", calls)
	}
	if slices.ContainsFunc(strings.Split(w.logged(), "\n"), func(line string) bool { return strings.Contains(line, "hunter22") }) {
		t.Error("the secret is in the log")
	}
}
