package hub_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const password = "correct horse"

// attachedWithPassword attaches volume v with a Secret that has the password.
func (v *virtual) attachedWithPassword() testbed.VolumeAttachment {
	v.create(testbed.Secret{Name: "secret", Data: map[string]string{"password": password + "\n"}})
	v.register("n", "id-n")
	v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: secretRef("secret")})
	v.start()
	va := v.attachment("v", "n")
	v.create(va)
	v.pass(time.Second)
	if got := v.get(va.Name); got == nil || !got.Status.Attached {
		v.t.Fatalf("not attached: %+v", got)
	}
	return va
}

// shows reports whether a text shows the password or a form of it.
func shows(text string) bool {
	return strings.Contains(text, "horse") || strings.Contains(text, base64.RawStdEncoding.EncodeToString([]byte(password))[:16])
}

// Such an error belongs to no call with secrets.
func TestASecretOfAPublishIsTakenOutOfErrorsOfProbeAndListVolumes(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.verbosity = 4
		v.attachedWithPassword()
		leak := "login admin:" + password + " (" + base64.StdEncoding.EncodeToString([]byte("admin:"+password)) + ") failed"
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ListVolumes, Code: codes.Internal, Message: leak}}})
		v.pass(10 * time.Minute)
		if log := v.log.String(); !strings.Contains(log, "ListVolumes failed") || shows(log) {
			t.Errorf("log after ListVolumes has failed: %s", log)
		}
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.Probe, Code: codes.Internal, Message: leak}}})
		v.pass(45 * time.Second) // before a second connection
		d := v.hub.Drivers()[0]
		if !strings.Contains(d.Reason, "login admin:[secret]") || shows(d.Reason+d.ConnectionError.Text+v.log.String()) {
			t.Errorf("reason %q, connection error %q, log %s", d.Reason, d.ConnectionError.Text, v.log.String())
		}
	})
}

func TestASecretOfOneVolumeIsTakenOutOfErrorsOfOthers(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.attachedWithPassword()
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal, Message: "login with " + password + " failed"}}})
		v.volume("other")
		va := v.attachment("other", "n")
		v.create(va)
		v.pass(time.Second)
		if got := v.get(va.Name).Status.AttachError; got == nil || !strings.Contains(got.Message, "login with [secret] failed") {
			t.Errorf("attachError %+v", got)
		}
	})
}
