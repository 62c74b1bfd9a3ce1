package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// TestLogAtEveryVerbosityHasNoSecretOrPublishContext runs a hub three times on the same objects, so that the
// later ones list what the first has written.
func TestLogAtEveryVerbosityHasNoSecretOrPublishContext(t *testing.T) {
	s := newScene(t, "secrets-in-log")
	driver, socket := s.entry("d")
	observed, observedSocket := s.prefix+"-observed", filepath.Join(s.dir, "observed")
	fmt.Fprintf(&s.config, "  - {name: %s, endpoint: \"unix://%s\", mode: observe}\n", observed, observedSocket)
	s.startDriver(observed, observedSocket)
	backend := s.startDriver(driver, socket).Backend
	secret, context := rand.Text(), rand.Text()
	if err := backend.Set(fakecsi.Knobs{PublishContext: map[string]string{"chapPassword": context}}); err != nil {
		t.Fatal(err)
	}
	ref := &corev1.SecretReference{Namespace: metav1.NamespaceDefault, Name: s.prefix}
	s.create(testbed.Secret{Namespace: ref.Namespace, Name: ref.Name, Data: map[string]string{"password": secret}},
		testbed.CSINode{Node: s.prefix, Drivers: map[string]string{driver: "id", observed: "id"}})
	attach := func(driver, name string) testbed.Object {
		s.create(testbed.PersistentVolume{Name: name, Driver: driver, Secret: ref})
		va := testbed.VolumeAttachment{Name: name, Driver: driver, Node: s.prefix, PersistentVolume: name}
		s.create(va)
		return va
	}
	attach(observed, s.prefix+"-observed")
	var attached []testbed.Object
	var hub *testbed.Process
	for i, flags := range [][]string{
		{"-v=10", "--logging-format=json"},
		{"-v=10"},
		{"--vmodule=request=10,round_trippers=10,*=9"},
	} {
		hub = s.startHub(flags...)
		attached = append(attached, attach(driver, fmt.Sprint(s.prefix, "-", i)))
		s.waitFor("attached", attachedAtLeast(i+1))
		s.checkExit(hub)
	}
	hub = s.startHub("-v=10")
	s.delete(attached...)
	s.waitFor("detached", func(own []*storagev1.VolumeAttachment) bool { return len(own) == 1 })
	s.checkExit(hub)

	log, err := os.ReadFile(hub.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range []string{"/secrets/" + s.prefix, "/volumeattachments/" + s.prefix + "-0/status"} {
		if !strings.Contains(string(log), request) {
			t.Errorf("the log has no line about the request %s, so it shows nothing", request)
		}
	}
	for what, value := range map[string]string{"secret": secret, "publish context": context} {
		if line := lineWith(string(log), value); line != "" {
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
