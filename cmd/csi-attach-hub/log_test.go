package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// documentedVolumeKeys returns the keys that OPERATE.md promises on each line about a volume.
func documentedVolumeKeys(t *testing.T) (keys []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/OPERATE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, _ := strings.Cut(string(text), "\n| a VolumeAttachment or its volume | ")
	row, _, _ = strings.Cut(row, ";")
	for _, key := range strings.Split(row, ", ") {
		keys = append(keys, strings.Trim(key, "`"))
	}
	if !slices.Contains(keys, "volumeHandle") {
		t.Fatalf("OPERATE.md promises the keys %q", keys)
	}
	return keys
}

// TestLogOfADayHasEachKeyOnceAndTheVolumesKeysOnEachLineAboutAVolume has a hub log as much as it can.
func TestLogOfADayHasEachKeyOnceAndTheVolumesKeysOnEachLineAboutAVolume(t *testing.T) {
	t.Parallel()
	s := newScene(t, "log")
	served := s.serve("d")
	driver, socket := served.Name, served.Socket
	set := func(k fakecsi.Knobs) { t.Helper(); s.must(served.Backend.Set(k)) }
	fail := func(m fakecsi.Method) {
		t.Helper()
		set(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: m, Code: codes.PermissionDenied, Message: "\x1b[31m\"full\",\"driver\":\n\xff"}}})
	}
	const settings = "retry: {initial: 200ms, max: 400ms}, stuckAfter: 500ms, drift: {interval: 1s}"
	drivers := func(mode string, more string) {
		s.configure("defaults: {%s}\ndrivers:\n  - {name: %s, endpoint: \"unix://%s\", mode: %s}\n%s", settings, driver, socket, mode, more)
	}
	other := func(name, mode string) string {
		return fmt.Sprintf("  - {name: %[1]s-%[2]s, endpoint: \"unix://%[3]s/%[1]s-%[2]s\", mode: %[4]s}\n", s.prefix, name, s.Dir, mode)
	}
	s.serve("observed")
	drivers("active", other("away", "active")+other("observed", "observe"))
	hub := s.startHub("--logging-format=json", "-v=5")
	said := func(messages ...string) {
		t.Helper()
		for _, m := range messages {
			s.logged(hub, `"msg":"`+m, 1)
		}
	}
	state := func(name, state string) {
		t.Helper()
		s.logged(hub, fmt.Sprintf(`"msg":"Driver state","driver":"%s-%s","v":0,"state":%q`, s.prefix, name, state), 1)
	}
	patch := func(name, manager, patch string, subresources ...string) {
		t.Helper()
		_, err := s.Plane.Clientset().StorageV1().VolumeAttachments().Patch(s.ctx, name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{FieldManager: manager}, subresources...)
		s.must(err)
	}
	left := func(n int) func([]*storagev1.VolumeAttachment) bool {
		return func(own []*storagev1.VolumeAttachment) bool { return len(own) == n }
	}
	all := s.attachments(driver, 4)
	name := func(i int) string { return all[i].(testbed.VolumeAttachment).Name }

	s.create(all[0])
	s.waitFor("attached", attachedAtLeast(1))
	said("Attached volume")
	state("observed", "Ready")
	state("away", "Connecting")
	fail(fakecsi.ControllerPublishVolume)
	s.create(all[1])
	said("Attach failed", "VolumeAttachments are stuck")
	set(fakecsi.Knobs{ClearFaults: true})
	s.waitFor("attached after failures", attachedAtLeast(2))
	fail(fakecsi.ControllerUnpublishVolume)
	s.delete(all[1])
	said("Detach failed")
	set(fakecsi.Knobs{ClearFaults: true})
	s.waitFor("detached after failures", left(1))
	said("Detached volume")

	s.create(all[2])
	s.waitFor("another attached", attachedAtLeast(2))
	fail(fakecsi.ControllerUnpublishVolume)
	s.delete(all[2])
	s.waitFor("detach failing", func(own []*storagev1.VolumeAttachment) bool {
		return slices.ContainsFunc(own, func(va *storagev1.VolumeAttachment) bool { return va.Status.DetachError != nil })
	})
	patch(name(2), "somebody", `{"metadata":{"finalizers":null}}`)
	said("VolumeAttachment is gone while its volume is attached")
	set(fakecsi.Knobs{ClearFaults: true})
	s.must(served.Backend.Wait(s.ctx, func(b fakecsi.Books) bool { return len(b.Attached) == 1 }))
	set(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: name(0)}}})
	said("ListVolumes no longer reports the volume on this node")
	patch(name(0), "csi-attacher", `{"status":{"attachError":{"message":"other","time":"2026-01-01T00:00:00Z"}}}`, "status")
	said("Another attacher writes VolumeAttachments")
	if metrics := s.get("/metrics"); !strings.Contains(metrics, fmt.Sprintf("attach_hub_foreign_writer_total{driver=%q} 1\n", driver)) {
		t.Errorf("the metric of foreign writers does not count it:\n%s", metrics)
	}

	s.config.WriteString("broken\n")
	s.rewrite()
	said("Configuration file rejected; the previous configuration stays active")
	drivers("paused", other("away", "paused"))
	s.rewrite()
	said("Configuration reloaded", "Driver settings changed", "Driver is no longer configured", "Lease released")
	state("d", "Paused")
	drivers("active", "")
	s.rewrite()
	s.create(all[3])
	s.waitFor("attached after the pause", attachedAtLeast(2))
	served.Server.Crash()
	state("d", "Lost")
	s.checkExit(hub)

	volumeKeys := documentedVolumeKeys(t)
	about := map[string]int{} // messages of lines about volumes
	failures := []string{"Attach failed", "Detach failed", "VolumeAttachments are stuck"}
	for line := range bytes.Lines([]byte(s.log(hub))) {
		values, err := decodeLine(line)
		if err != nil {
			t.Errorf("%v: %s", err, line)
			continue
		}
		message, own := fmt.Sprint(values["msg"]), strings.HasPrefix(fmt.Sprint(values["caller"]), "hub/")
		if slices.Contains(failures, message) && values["v"] != nil { // which lines of severity error do not have
			t.Errorf("it is no error: %s", line)
		}
		if values["volumeAttachment"] == nil && values["volumeHandle"] == nil && !(own && bytes.Contains(line, []byte(driver+"-"))) {
			continue
		}
		if about[message]++; message == "VolumeAttachments are stuck" { // it is about many
			continue
		}
		for _, key := range volumeKeys {
			if value, ok := values[key].(string); !ok || !strings.HasPrefix(value, driver) {
				t.Errorf("%s is %v: %s", key, values[key], line)
			}
		}
	}
	t.Log(about)
}

var camelCase = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)

// decodeLine returns the values of a line of JSON. It fails if a key is there twice, which encoding/json does not
// report, or is not in camel case.
func decodeLine(line []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, fmt.Errorf("not an object of JSON: %v", err)
	}
	values := map[string]any{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value any
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		name := key.(string)
		if _, twice := values[name]; twice {
			return nil, fmt.Errorf("the key %q is there twice", name)
		}
		if !camelCase.MatchString(name) {
			return nil, fmt.Errorf("the key %q is not in camel case", name)
		}
		values[name] = value
	}
	_, err := d.Token()
	return values, err
}

func TestLinesOfOtherLoggersGoThroughKlog(t *testing.T) {
	defer klog.CaptureState().Restore()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	klog.SetLogger(logger)
	log.New(klogWriter("Go library"), "", 0).Print("a line\n")
	lines := logger.GetSink().(ktesting.Underlier).GetBuffer().Data()
	if len(lines) != 1 || lines[0].Message != "Go library" || len(lines[0].ParameterKVList) != 2 || lines[0].ParameterKVList[1] != "a line" {
		t.Errorf("logged %+v", lines)
	}
}
