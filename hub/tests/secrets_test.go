package tests

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const password = "correct horse"

// shows reports whether a text shows the password or a form of it.
func shows(text string) bool {
	return strings.Contains(text, "horse") || strings.Contains(text, base64.RawStdEncoding.EncodeToString([]byte(password))[:16])
}

// Such an error belongs to no call with secrets.
func TestASecretOfAPublishIsTakenOutOfErrorsOfProbeAndListVolumes(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.verbosity = 4
		v.start()
		v.secret("secret", password+"\n")
		v.register("n", "id-n")
		v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: secretRef("secret")})
		v.attach("v")
		v.wantAttached("v-n")
		leak := "login admin:" + password + " (" + base64.StdEncoding.EncodeToString([]byte(password)) + ") failed"
		v.setKnobs(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ListVolumes, Code: codes.Internal, Message: leak}}})
		v.pass(10 * time.Minute)
		if log := v.log.String(); !strings.Contains(log, "ListVolumes failed") || shows(log) {
			t.Errorf("log after ListVolumes has failed: %s", log)
		}
		v.setKnobs(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.Probe, Code: codes.Internal, Message: leak}}})
		v.pass(45 * time.Second) // before it is dialled anew
		d := v.status()
		if !strings.Contains(d.Reason, "login admin:[secret]") || shows(d.Reason+d.ConnectionError.Text+v.log.String()) {
			t.Errorf("reason %q, connection error %q, log %s", d.Reason, d.ConnectionError.Text, v.log.String())
		}
	})
}

// Whoever may write a PersistentVolume or a VolumeAttachment could have the hub send the Secret of one driver to another.
func TestVolumesMayNameOnlySecretsOfTheirDriver(t *testing.T) {
	type row struct {
		own, listed registry.SecretPatterns
		refused     string
	}
	for _, inline := range []bool{false, true} {
		eachInVirtualTime(t, map[string]row{
			"no list at all":          {"", "", ""},
			"in its list":             {"default/other,default/first", "default/other,default/first", ""},
			"in a namespace of its":   {"default/*", "default/*", ""},
			"not in its list":         {"default/other,kube-system/*", "default/other,kube-system/*", "it is not in the driver's list"},
			"in a list of another":    {"", "default/first", "it is in the list of another driver"},
			"only others are listed":  {"", "default/other,kube-system/first,kube-system/*", ""},
			"another one has it, too": {"default/first", "default/*,default/first", ""},
		}, func(v *virtual, c row) {
			v.driver.Source, v.driver.Secrets, v.driver.Listed = "drivers.yaml:14", c.own, c.listed
			v.secret("first", "one")
			v.register("n", "id-n")
			pv := testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: secretRef("first")}
			va := v.attachment("v", "n")
			if inline {
				va.PersistentVolume, va.Inline = "", pv.Inline()
			} else {
				v.create(pv)
			}
			v.start()
			v.create(va)
			v.pass(time.Second)
			if c.refused == "" {
				v.wantAttached(va.Name)
				return
			}
			v.wantAttachError(va.Name, "read secret default/first for the call: volumes of driver "+virtualDriver+" may not name it, "+c.refused+": if they should, add default/first to secrets of its entry in drivers.yaml")
			v.wantCalls("v")
		})
	}
}

func TestAVolumeIsAttachedAtOnceWhenItsSecretIsAllowed(t *testing.T) {
	eachInVirtualTime(t, map[string]func(*registry.Driver){
		"added to its list":           func(d *registry.Driver) { d.Secrets, d.Listed = "default/*", "default/*" },
		"removed from another's list": func(d *registry.Driver) { d.Listed = "" },
	}, func(v *virtual, allow func(*registry.Driver)) {
		v.driver.Listed = "default/first"
		v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour
		v.secret("first", "one")
		v.register("n", "id-n")
		v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: secretRef("first")})
		v.start()
		v.attach("v")
		v.pass(5 * time.Minute)
		v.wantAttachError("v-n", "may not name it")
		allow(&v.driver)
		v.serve()
		v.pass(time.Second)
		v.wantAttached("v-n")
		if v.connections() != 1 {
			v.t.Errorf("%d connections", v.connections())
		}
	})
}

func TestASecretThatIsNoLongerAllowedIsNotUsedForTheDetach(t *testing.T) {
	eachInVirtualTime(t, map[string]bool{"the VolumeAttachment is deleted": false, "it is removed by force": true}, func(v *virtual, force bool) {
		v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour
		v.start()
		va := v.attachedWithSecret()
		v.driver.Listed = "default/first"
		v.serve()
		v.pass(time.Second)
		if force {
			v.vanish(va)
		} else {
			v.delete(va)
		}
		v.pass(5 * time.Minute)
		v.wantCalls("v", "publish id-n")
		if !force {
			v.wantDetachError(va.Name, "may not name it")
		} else if shown := v.dangled(); len(shown) != 1 || !strings.Contains(shown[0].LastError, "may not name it") {
			v.t.Errorf("shown %+v", shown)
		}
		v.driver.Secrets = "default/*"
		v.serve()
		v.pass(time.Second)
		v.wantGone(va.Name)
		v.wantCalls("v", "publish id-n", "unpublish id-n")
		v.wantDangling(0)
	})
}

// A secret of which a driver can be told nothing keeps its volume from being attached, and
// says so; it does not keep the VolumeAttachment.
func TestSecretThatIsNoTextIsNamed(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: w.name("secret")}, Data: map[string][]byte{"key": []byte("hunter22\xff")}}
	if _, err := w.kube.CoreV1().Secrets("default").Create(w.ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	va := testbed.VolumeAttachment{Name: w.name("v"), Driver: driver, Node: w.node("n", driver), PersistentVolume: w.name("v")}
	w.create(testbed.PersistentVolume{Name: va.Name, Driver: driver, Secret: secretRef(secret.Name)})
	w.start()
	w.create(va)
	if text := w.waitAttachError(va).Status.AttachError.Message; !strings.Contains(text, "default/"+secret.Name) || !strings.Contains(text, `"key"`) || strings.Contains(text, "hunter22") {
		t.Errorf("error %q, want secret and key to be named", text)
	}
	w.delete(va)
	w.waitNoneLeft()
	if calls := backend.Books().Methods; calls[publish].Begun+calls[unpublish].Begun > 0 {
		t.Errorf("the driver was called: %+v", calls)
	}
	if strings.Contains(w.logged(), "hunter22") {
		t.Error("the secret is in the log")
	}
}

func secretRef(name string) *corev1.SecretReference {
	return &corev1.SecretReference{Namespace: "default", Name: name}
}

// secret makes a Secret anew.
func (v *virtual) secret(name, value string) {
	v.t.Helper()
	v.delete(testbed.Secret{Name: name})
	v.create(testbed.Secret{Name: name, Data: map[string]string{"key": value}})
}

// attachedWithSecret has a hub that runs attach volume v to node n as id-n, with the secret "first". There is a
// secret "second" too.
func (v *virtual) attachedWithSecret() testbed.VolumeAttachment {
	v.t.Helper()
	v.secret("first", "one")
	v.secret("second", "two")
	v.register("n", "id-n")
	v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: secretRef("first")})
	va := v.attach("v")[0]
	v.wantAttached(va.Name)
	return va
}

func TestSecretsAreThoseOfTheMomentOfEachTry(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Retry.Initial = 10 * time.Second
		v.register("n", "id-n")
		v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: secretRef("first")},
			testbed.PersistentVolume{Name: "none", Driver: virtualDriver})
		v.start()
		v.setKnobs(failing(publish, codes.Unauthenticated))
		v.attach("v", "none")
		if e := v.get("v-n").Status.AttachError; e == nil || e.ErrorCode != nil || !strings.Contains(e.Message, "secret default/first") {
			t.Errorf("attachError %+v, want the missing secret to be named, without a code", e)
		}
		for _, value := range []string{"one", "two", ""} {
			v.secret("first", value)
			v.pass(2 * time.Minute)
			if got := v.backend.LastPublish("v").GetSecrets(); len(got) != 1 || got["key"] != value {
				t.Errorf("secrets %v, want %q", got, value)
			}
		}
		if got := v.backend.LastPublish("none"); got == nil || got.Secrets != nil {
			t.Errorf("%v, want it published without secrets", got)
		}
	})
}

// The secret of the PersistentVolume of today went with the call for the volume of yesterday.
func TestDetachIsOfTheVolumeAndWithTheSecretOfThePublish(t *testing.T) {
	remake := func(handle string) func(*virtual) {
		return func(v *virtual) {
			v.recreate(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: handle, Secret: secretRef("second")})
		}
	}
	type row struct {
		change  func(*virtual)
		restart bool   // nobody remembers the publish
		want    string // the secret
		misses  string // text of the error until the secret is there; "" for none
	}
	eachInVirtualTime(t, map[string]row{
		"nothing changed":                  {func(*virtual) {}, false, "one", ""},
		"the secret is another":            {func(v *virtual) { v.secret("first", "new") }, false, "new", ""},
		"it is gone":                       {func(v *virtual) { v.delete(testbed.Secret{Name: "first"}) }, false, "one", ""},
		"it is gone, after a restart":      {func(v *virtual) { v.delete(testbed.Secret{Name: "first"}) }, true, "again", "default/first"},
		"a new PersistentVolume":           {remake("new"), false, "one", ""},
		"a new one, after a restart":       {remake("new"), true, "", ""},
		"a new one of the same volume":     {remake("v"), false, "one", ""},
		"a new one of it, after a restart": {remake("v"), true, "two", ""},
	}, func(v *virtual, c row) {
		stop := v.start()
		va := v.attachedWithSecret()
		c.change(v)
		v.pass(time.Second)
		if c.restart {
			stop()
			v.start()
			v.pass(time.Second)
		}
		v.delete(va)
		v.pass(time.Minute)
		if c.misses != "" {
			v.wantDetachError(va.Name, c.misses)
			if e := v.get(va.Name).Status.DetachError; e.ErrorCode != nil {
				v.t.Errorf("%+v has a code", e)
			}
			v.secret("first", "again")
			v.pass(2 * time.Minute)
		}
		v.wantGone(va.Name)
		v.wantCalls("v", "publish id-n", "unpublish id-n")
		v.wantCalls("new")
		if got := v.backend.LastUnpublish("v").GetSecrets()["key"]; got != c.want {
			v.t.Errorf("secret of the detach %q, want %q", got, c.want)
		}
	})
}

// Another process had begun to attach the old volume; its unpublish was sent the secret of the new one.
func TestPreviousVolumeIsNotSentTheSecretOfTheRecreatedPersistentVolume(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		object := begun(v.attachment("v", "n"), "id-n")
		object.Annotations[attach.AnnotationVolumeHandle] = "old"
		v.write(object)
		v.secret("second", "two")
		v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: "new", Secret: secretRef("second")})
		v.start()
		v.pass(time.Minute)
		v.wantAttached("v-n")
		if request := v.backend.LastUnpublish("old"); request == nil || len(request.GetSecrets()) > 0 {
			t.Errorf("unpublish of the old volume %v, want one without a secret", request)
		}
	})
}
