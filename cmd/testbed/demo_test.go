package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// demoOptions are those of a small scene with its folder in the returned one.
func demoOptions(t *testing.T, out *bytes.Buffer) (sceneOptions, string) {
	t.Helper()
	dir := testbed.ShortTempDir(t)
	t.Setenv("TMPDIR", dir)
	return sceneOptions{pods: 8, nodes: 2, timeout: 10 * time.Minute, out: out}, dir
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestDemoAttachesAndDetachesWhatPodsUse(t *testing.T) {
	hub, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	o, dir := demoOptions(t, &out)
	o.hub = hub
	if err := runDemo(t.Context(), o); err != nil {
		t.Fatalf("%v\nit said:\n%s", err, &out)
	}
	last := 0
	for _, want := range []string{
		"The hub's status page: http://127.0.0.1:",
		"Phase 1",
		"The volumes of the other drivers are attached, while hanging has not answered.",
		"Every VolumeAttachment is gone, and every storage is empty.",
		"Everything held.",
	} {
		at := strings.Index(out.String(), want)
		if at < last {
			t.Errorf("it did not say %q, or too early, but:\n%s", want, &out)
		}
		last = at
	}
	checkEmpty(t, dir)
}

func TestDemoSaysThatTheHubEndedAndKeepsTheLogs(t *testing.T) {
	var out bytes.Buffer
	o, dir := demoOptions(t, &out)
	o.hub = filepath.Join(dir, "hub")
	if err := os.WriteFile(o.hub, []byte("#!/bin/sh\necho no config for you >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := runDemo(t.Context(), o)
	if err == nil {
		t.Fatalf("it held without a hub:\n%s", &out)
	}
	for _, want := range []string{"the hub has ended, exit code 3", "no config for you"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q, want %q in it", err, want)
		}
	}
	logs, _ := filepath.Glob(filepath.Join(dir, "attach-hub-*", "hub.log"))
	if len(logs) != 1 || !strings.Contains(out.String(), filepath.Dir(logs[0])) {
		t.Errorf("logs %v, said:\n%s", logs, &out)
	}
}

// headlines is an output that ends a demo when it says a certain text.
type headlines struct {
	bytes.Buffer
	text string
	then func()
}

func (h *headlines) Write(p []byte) (int, error) {
	n, err := h.Buffer.Write(p)
	if strings.Contains(h.String(), h.text) {
		h.then()
	}
	return n, err
}

// TestSandbox checks the same of a sandbox, in the midst of its work.
func TestDemoThatIsStoppedInItsSetUpLeavesNothingBehind(t *testing.T) {
	o, dir := demoOptions(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &headlines{text: "Set-up", then: cancel}
	o.hub, o.out = "no-hub", out
	if err := runDemo(ctx, o); err == nil || err.Error() != "demo: stopped before its end" {
		t.Errorf("error %v; it said:\n%s", err, out)
	}
	checkEmpty(t, dir)
}

func TestAuditNamesWhatDoesNotHold(t *testing.T) {
	tests := []struct {
		name   string
		change func(*fakecsi.Books)
		want   string // empty: all holds
	}{
		{"all holds", func(*fakecsi.Books) {}, ""},
		{"violation", func(b *fakecsi.Books) {
			b.ViolationCount, b.Violations = 1, []fakecsi.Violation{{Rule: safety.OneNode, Volume: "v"}}
		}, "flaky: 1 violations, the first one: {Rule:OneNode"},
		{"left attached", func(b *fakecsi.Books) { b.Attached = map[string]map[string]fakecsi.Attachment{"v": {"n": {}}} }, "still attached: v"},
		{"a call too many", func(b *fakecsi.Books) {
			b.Methods[fakecsi.ControllerPublishVolume] = fakecsi.MethodBook{Begun: 7, Ended: 7, Changed: 2}
		}, "7 calls of ControllerPublishVolume, of which 7 have ended, want 6"},
		{"a call that has not ended", func(b *fakecsi.Books) {
			b.Methods[fakecsi.ControllerUnpublishVolume] = fakecsi.MethodBook{Begun: 6, Ended: 5, Changed: 2}
		}, "6 calls of ControllerUnpublishVolume, of which 5 have ended"},
		{"a call for nothing", func(b *fakecsi.Books) {
			b.Methods[fakecsi.ControllerUnpublishVolume] = fakecsi.MethodBook{Begun: 6, Ended: 6, Changed: 1, Unchanged: 1}
		}, "1 calls of ControllerUnpublishVolume changed something and 1 did not"},
	}
	flaky := behaviour{short: "flaky", failures: 2}
	for _, tt := range tests {
		good := fakecsi.MethodBook{Begun: 6, Ended: 6, Changed: 2}
		books := fakecsi.Books{Methods: map[fakecsi.Method]fakecsi.MethodBook{
			fakecsi.ControllerPublishVolume: good, fakecsi.ControllerUnpublishVolume: good,
		}}
		tt.change(&books)
		got := ""
		if err := errors.Join(audit(flaky, 2, books)...); err != nil {
			got = err.Error()
		}
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
