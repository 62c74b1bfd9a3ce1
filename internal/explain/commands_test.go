package explain_test

import (
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

func TestCommandsAreLinesToBeCopied(t *testing.T) {
	w := newWorld()
	reason := func(fact string, commands ...string) status.Reason {
		return status.Reason{State: status.Broken, Diagnosis: diagnosis.Diagnosis{Verdict: diagnosis.DriverPaused, Object: "driver " + driverName, Fact: fact, Actions: []string{"Resume it."}, Commands: commands}}
	}
	w.served.Health = status.Health{State: status.Broken, Reasons: []status.Reason{
		reason("paused", "kubectl annotate x 'two  spaces'", "csi-attach-hub explain driver/x"),
		reason("hostile", "kubectl get hidden", "rm \x1b[2K\u202e hidden"),
	}}
	report, err := w.asked(t, "driver/"+driverName)
	if err != nil {
		t.Fatal(err)
	}
	want := "        -> Resume it.\n           kubectl annotate x 'two  spaces'\n           csi-attach-hub explain driver/x\n"
	if text := report.Text(); !strings.Contains(text, want) || strings.Contains(text, "hidden") {
		t.Errorf("got\n%s\nwant in it\n%s", text, want)
	}
}
