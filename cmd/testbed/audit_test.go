package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
)

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
