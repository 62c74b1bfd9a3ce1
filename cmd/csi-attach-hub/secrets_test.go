package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// eventsOf waits until there are Events with the reasons on a VolumeAttachment, and returns all of it.
func (s *scene) eventsOf(name string, reasons ...string) []corev1.Event {
	s.t.Helper()
	var list *corev1.EventList
	s.until(func() bool {
		var err error
		list, err = s.Plane.Clientset().CoreV1().Events("default").List(s.ctx, metav1.ListOptions{
			FieldSelector: fields.Set{"involvedObject.kind": "VolumeAttachment", "involvedObject.name": name}.String()})
		s.must(err)
		seen := map[string]bool{}
		for _, e := range list.Items {
			seen[e.Reason] = true
		}
		return len(seen) >= len(reasons) && seen[reasons[0]] && seen[reasons[len(reasons)-1]]
	}, func() string { return fmt.Sprintf("no Events %v on %s, there are %+v", reasons, name, list.Items) })
	return list.Items
}

// The later hubs list what the first one has written. All log as much as they can.
func TestNoSecretAndNoPublishContextIsInEventsErrorsAndLogs(t *testing.T) {
	t.Parallel()
	s := newScene(t, "secrets")
	secret, context := rand.Text(), rand.Text()
	d := s.driver("d", "retry: {initial: 10ms, max: 10ms}, stuckAfter: 100ms", fakecsi.Knobs{PublishContext: map[string]string{"chapPassword": context},
		Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal, Message: "cannot log in with password " + secret}}})
	s.driver("observed", "mode: observe")
	ref := &corev1.SecretReference{Namespace: metav1.NamespaceDefault, Name: s.prefix}
	s.create(testbed.Secret{Namespace: ref.Namespace, Name: ref.Name, Data: map[string]string{"password": secret}},
		testbed.CSINode{Node: s.prefix, Drivers: map[string]string{s.drivers[0]: "id", s.drivers[1]: "id"}})
	for _, name := range s.drivers {
		s.create(testbed.PersistentVolume{Name: name, Driver: name, Secret: ref})
		s.create(testbed.VolumeAttachment{Name: name, Driver: name, Node: s.prefix, PersistentVolume: name})
	}
	hub := s.startHub("-v=10", "--logging-format=json")
	s.must(d.Backend.Wait(s.ctx, func(b fakecsi.Books) bool { return b.Methods[fakecsi.ControllerPublishVolume].Ended >= 100 }))
	times := 0
	for _, e := range s.eventsOf(d.Name, "AttachFailed", "AttachStuck") {
		times += int(max(1, e.Count))
		if e.Source.Component != "csi-attach-hub" || e.Type != corev1.EventTypeWarning {
			t.Errorf("an Event of %q, %s, want a warning of csi-attach-hub", e.Source.Component, e.Type)
		}
		if strings.Contains(e.Message, secret) || e.Reason == "AttachFailed" && !strings.Contains(e.Message, "cannot log in with password [secret]") {
			t.Errorf("message %q, want the driver's words without the secret", e.Message)
		}
	}
	if most := 10; times > most {
		t.Errorf("told %d times after 100 failures, want at most %d", times, most)
	}
	s.waitFor("an error without the secret", func(own []*storagev1.VolumeAttachment) bool {
		for _, va := range own {
			if e := va.Status.AttachError; e != nil {
				return !strings.Contains(e.Message, secret)
			}
		}
		return false
	})
	s.must(d.Backend.Set(fakecsi.Knobs{ClearFaults: true}))
	s.waitFor("attached", attachedAtLeast(1))
	s.checkExit(hub)
	hub = s.startHub("--vmodule=request=10,round_trippers=10,*=9")
	s.delete(testbed.VolumeAttachment{Name: d.Name})
	s.waitFor("detached", func(own []*storagev1.VolumeAttachment) bool { return len(own) == 1 })
	s.checkExit(hub)

	log := s.log(hub)
	for _, request := range []string{"/secrets/" + s.prefix, "/volumeattachments/" + d.Name + "/status"} {
		if !strings.Contains(log, request) {
			t.Errorf("the log has no line about the request %s, so it shows nothing", request)
		}
	}
	for what, value := range map[string]string{"secret": secret, "publish context": context} {
		if line := lineWith(log, value); line != "" {
			t.Errorf("the log has the %s %q: %.300s", what, value, line)
		}
	}
}

// lineWith returns a line with a part of a value of letters and digits: as it is, in base64 at each offset, or in
// hex as a string or a dump. Parts, since a dump breaks its lines after 16 bytes.
func lineWith(log, value string) string {
	var forms []string
	for i := range len(value) - 8 {
		part := value[i : i+8]
		forms = append(forms, part, hex.EncodeToString([]byte(part)), fmt.Sprintf("% x", part),
			base64.StdEncoding.EncodeToString([]byte(part[:6])))
	}
	log = strings.ReplaceAll(log, `\n`, "\n") // a dump in JSON
	for line := range strings.Lines(log) {
		for _, form := range forms {
			if strings.Contains(line, form) {
				return line
			}
		}
	}
	return ""
}
