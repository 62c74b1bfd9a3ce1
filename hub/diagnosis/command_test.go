package diagnosis_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

func TestShellReadsTheWordsOfACommandAsTheyWere(t *testing.T) {
	for _, word := range []string{
		"plain", "a=b", "=a", "", " ", "two words", "$(touch /tmp/x)", "`id`", "it's", `back\slash`, `"quoted"`, "a;b", "a&b|c>d<e", "*", "~", "#no", "!x",
		`{"spec":{"replicas":1}}`, "unix:///csi/csi.sock", "driver.attach-hub/ebs.csi.aws.com=true", "-n", "ä",
	} {
		lines := diagnosis.Commands([]string{"printf", "%s.", word, "end"})
		if len(lines) != 1 {
			t.Fatalf("%q: got %q, want one line", word, lines)
		}
		got, err := exec.CommandContext(t.Context(), "sh", "-ec", lines[0]).Output()
		if err != nil || string(got) != word+".end." {
			t.Errorf("%s: the shell read %q, %v; want %q", lines[0], got, err, word)
		}
	}
}

func TestPlainWordsOfACommandHaveNoQuotes(t *testing.T) {
	got := diagnosis.Commands([]string{"kubectl", "-n", "storage", "scale", "deployment/csi", "--replicas=1"}, []string{"csi-attach-hub", "explain", "driver/ebs.csi.aws.com"})
	want := "kubectl -n storage scale deployment/csi --replicas=1\ncsi-attach-hub explain driver/ebs.csi.aws.com"
	if strings.Join(got, "\n") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Half of the commands would be worse than none.
func TestCommandsWithATextThatCannotBePrintedAreLeftOut(t *testing.T) {
	for _, word := range []string{"a\nb", "\x1b[2J", "\u202e", "\x00", "\xff", "\u200b"} {
		if got := diagnosis.Commands([]string{"kubectl", "get", "pods"}, []string{"kubectl", "delete", word}); got != nil {
			t.Errorf("%q: got %q, want none", word, got)
		}
	}
}
