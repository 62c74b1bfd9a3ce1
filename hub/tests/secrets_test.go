package tests

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
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
		leak := "login admin:" + password + " (" + base64.StdEncoding.EncodeToString([]byte(password)) + ") failed"
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ListVolumes, Code: codes.Internal, Message: leak}}})
		v.pass(10 * time.Minute)
		if log := v.log.String(); !strings.Contains(log, "ListVolumes failed") || shows(log) {
			t.Errorf("log after ListVolumes has failed: %s", log)
		}
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.Probe, Code: codes.Internal, Message: leak}}})
		v.pass(45 * time.Second) // before it is dialled anew
		d := v.hub.Drivers()[0]
		if !strings.Contains(d.Reason, "login admin:[secret]") || shows(d.Reason+d.ConnectionError.Text+v.log.String()) {
			t.Errorf("reason %q, connection error %q, log %s", d.Reason, d.ConnectionError.Text, v.log.String())
		}
	})
}

// Whoever may write a PersistentVolume or a VolumeAttachment could have the hub send the Secret of one driver to another.
func TestVolumesMayNameOnlySecretsOfTheirDriver(t *testing.T) {
	for name, tc := range map[string]struct {
		own, listed registry.SecretPatterns
		refused     string
	}{
		"no list at all":          {"", "", ""},
		"in its list":             {"default/other,default/secret", "default/other,default/secret", ""},
		"in a namespace of its":   {"default/*", "default/*", ""},
		"not in its list":         {"default/other,kube-system/*", "default/other,kube-system/*", "it is not in the driver's list"},
		"in a list of another":    {"", "default/secret", "it is in the list of another driver"},
		"only others are listed":  {"", "default/other,kube-system/secret,kube-system/*", ""},
		"another one has it, too": {"default/secret", "default/*,default/secret", ""},
	} {
		for _, inline := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, inline %t", name, inline), func(t *testing.T) {
				inVirtualTime(t, func(v *virtual) {
					v.driver.Source, v.driver.Secrets, v.driver.Listed = "drivers.yaml:14", tc.own, tc.listed
					v.create(testbed.Secret{Name: "secret", Data: map[string]string{"password": password}})
					v.register("n", "id-n")
					pv := testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: secretRef("secret")}
					va := v.attachment("v", "n")
					if inline {
						va.PersistentVolume, va.Inline = "", pv.Inline()
					} else {
						v.create(pv)
					}
					v.start()
					v.create(va)
					v.pass(time.Second)
					got := v.get(va.Name)
					if tc.refused == "" {
						if !got.Status.Attached {
							t.Errorf("not attached: %+v", got.Status)
						}
						return
					}
					want := "read secret default/secret for the call: volumes of driver " + virtualDriver + " may not name it, " + tc.refused + ": if they should, add default/secret to secrets of its entry in drivers.yaml"
					if e := got.Status.AttachError; e == nil || e.Message != want || publishes(v.backend) > 0 {
						t.Errorf("%d publishes, status %+v, want the error %q", publishes(v.backend), got.Status, want)
					}
				})
			})
		}
	}
}

func TestAVolumeIsAttachedAtOnceWhenItsSecretIsAllowed(t *testing.T) {
	for name, allow := range map[string]func(*registry.Driver){
		"added to its list":           func(d *registry.Driver) { d.Secrets, d.Listed = "default/*", "default/*" },
		"removed from another's list": func(d *registry.Driver) { d.Listed = "" },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Listed = "default/secret"
				v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour
				v.create(testbed.Secret{Name: "secret", Data: map[string]string{"password": password}})
				v.register("n", "id-n")
				v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: secretRef("secret")})
				v.start()
				va := v.attachment("v", "n")
				v.create(va)
				v.pass(5 * time.Minute)
				if v.get(va.Name).Status.AttachError == nil {
					t.Fatal("not refused")
				}
				allow(&v.driver)
				v.updates <- registry.Snapshot{v.driver.Name: v.driver}
				v.pass(time.Second)
				if got := v.get(va.Name); !got.Status.Attached || v.dials != 1 {
					t.Errorf("status %+v after %d connections", got.Status, v.dials)
				}
			})
		})
	}
}

func TestASecretThatIsNoLongerAllowedIsNotUsedForTheDetach(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		va := v.attachedWithPassword()
		v.driver.Listed = "default/secret"
		v.updates <- registry.Snapshot{v.driver.Name: v.driver}
		v.pass(time.Second)
		v.delete(va)
		v.pass(time.Minute)
		if got := v.get(va.Name); got == nil || got.Status.DetachError == nil || !strings.Contains(got.Status.DetachError.Message, "may not name it") || v.unpublishes() > 0 {
			t.Fatalf("%d unpublishes, %+v", v.unpublishes(), got)
		}
		v.driver.Secrets = "default/*"
		v.updates <- registry.Snapshot{v.driver.Name: v.driver}
		v.pass(time.Second)
		if v.get(va.Name) != nil {
			t.Error("not detached when it is allowed again")
		}
	})
}

// Its VolumeAttachment was removed by force.
func TestADanglingVolumeIsDetachedAtOnceWhenItsSecretIsAllowed(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour
		va := v.attachedWithPassword()
		v.driver.Listed = "default/secret"
		v.updates <- registry.Snapshot{v.driver.Name: v.driver}
		v.pass(time.Second)
		v.vanish(va)
		v.pass(5 * time.Minute)
		if shown := v.hub.Drivers()[0].Dangling; len(shown) != 1 || !strings.Contains(shown[0].LastError, "may not name it") || v.unpublishes() > 0 {
			t.Fatalf("%d unpublishes, shown %+v", v.unpublishes(), shown)
		}
		v.driver.Secrets = "default/*"
		v.updates <- registry.Snapshot{v.driver.Name: v.driver}
		v.pass(time.Second)
		if v.unpublishes() != 1 || v.danglingCount() > 0 {
			t.Errorf("%d unpublishes when it is allowed again", v.unpublishes())
		}
	})
}
