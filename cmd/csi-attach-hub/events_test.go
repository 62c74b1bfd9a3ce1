package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// eventsOf waits until there is an Event with a reason on a VolumeAttachment, and returns
// all of it.
func (s *scene) eventsOf(name, reason string) []corev1.Event {
	s.t.Helper()
	return s.eventsOn("VolumeAttachment", name, reason)
}

// eventsOn is eventsOf for an object of any kind without a namespace.
func (s *scene) eventsOn(kind, name, reason string) []corev1.Event {
	s.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := s.plane.Clientset().CoreV1().Events("default").List(s.ctx, metav1.ListOptions{
			FieldSelector: fields.Set{"involvedObject.kind": kind, "involvedObject.name": name}.String()})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Reason == reason {
				return list.Items
			}
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("no Event %s on %s, there are %+v", reason, name, list.Items)
		}
	}
}

func TestEventsTellWhatGoesWrongWithoutSecretsAndWithoutEnd(t *testing.T) {
	s := newScene(t, "events")
	socket := filepath.Join(s.dir, "d")
	driver, backend := s.serve("d", socket)
	const password = "hunter22-of-the-backend"
	err := backend.Set(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal,
		Message: "cannot log in with password " + password}}})
	if err != nil {
		t.Fatal(err)
	}
	s.configure("drivers:\n  - {name: %s, endpoint: \"unix://%s\", retry: {initial: 10ms, max: 10ms}, stuckAfter: 100ms}\n", driver, socket)
	s.startHub()
	s.create(
		testbed.CSINode{Node: driver + "-node", Drivers: map[string]string{driver: "id"}},
		testbed.Secret{Name: driver, Data: map[string]string{"password": password}},
		testbed.PersistentVolume{Name: driver, Driver: driver, Secret: &corev1.SecretReference{Namespace: "default", Name: driver}},
		testbed.VolumeAttachment{Name: driver, Driver: driver, Node: driver + "-node", PersistentVolume: driver},
	)
	if err := backend.Wait(s.ctx, func(b fakecsi.Books) bool { return b.Methods[fakecsi.ControllerPublishVolume].Ended >= 100 }); err != nil {
		t.Fatal(err)
	}
	s.eventsOf(driver, "AttachStuck")
	all := s.eventsOf(driver, "AttachFailed")
	times := 0
	for _, e := range all {
		times += int(max(1, e.Count))
		if e.Source.Component != "csi-attach-hub" || e.Type != corev1.EventTypeWarning {
			t.Errorf("an Event of %q, %s, want a warning of csi-attach-hub", e.Source.Component, e.Type)
		}
		if strings.Contains(e.Message, password) {
			t.Errorf("the secret is in an Event: %s", e.Message)
		}
		if e.Reason == "AttachFailed" && !strings.Contains(e.Message, "cannot log in with password [secret]") {
			t.Errorf("message %q, want the driver's words", e.Message)
		}
	}
	if most := 10; times > most {
		t.Errorf("told %d times after 100 failures, want at most %d", times, most)
	}
	if va, err := s.plane.Clientset().StorageV1().VolumeAttachments().Get(s.ctx, driver, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	} else if e := va.Status.AttachError; e == nil || strings.Contains(e.Message, password) {
		t.Errorf("attachError %+v, want one without the secret", e)
	}
}
