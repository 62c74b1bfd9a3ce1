package diagnosis_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

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

// run runs commands in a shell whose kubectl only writes down its arguments and its input.
func run(t *testing.T, commands []string) (arguments []string, input string) {
	t.Helper()
	dir := t.TempDir()
	const kubectl = "#!/bin/sh\necho \"$@\" >>\"$OUT/arguments\"\n[ \"$1\" != create ] || cat >\"$OUT/input\"\n"
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	shell := exec.CommandContext(t.Context(), "sh", "-euc", strings.Join(commands, "\n"))
	shell.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "OUT="+dir)
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", commands, err, out)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	return strings.Split(strings.TrimSpace(read("arguments")), "\n"), read("input")
}

func TestDetachCommandsCreateAVolumeAttachmentAwaitItAndDeleteIt(t *testing.T) {
	for _, names := range [][3]string{
		{"ebs.csi.aws.com", "worker-7", "pvc-7"},
		{`d'; touch x; '`, "$(touch x)`touch x`", `"}, "kind": "Secret\\`},
	} {
		driver, node, volume := names[0], names[1], names[2]
		arguments, input := run(t, diagnosis.DetachCommands(driver, node, volume))
		var va storagev1.VolumeAttachment
		if err := json.Unmarshal([]byte(input), &va); err != nil {
			t.Fatalf("%s: %v", input, err)
		}
		source := va.Spec.Source.PersistentVolumeName
		if va.Kind != "VolumeAttachment" || va.APIVersion != "storage.k8s.io/v1" || va.Spec.Attacher != driver || va.Spec.NodeName != node || source == nil || *source != volume {
			t.Errorf("%q: kubectl reads %s", names, input)
		}
		want := []string{"create -f -", "wait --for=jsonpath={.status.attached}=true volumeattachment/" + va.Name + " --timeout=2m", "delete volumeattachment " + va.Name}
		if strings.Join(arguments, "\n") != strings.Join(want, "\n") {
			t.Errorf("%q: kubectl is called with %q, want %q", names, arguments, want)
		}
	}
}

// kubectl create fails if the name is taken, and kubectl delete would delete another one.
func TestDetachCommandsNameEachVolumeAttachmentDifferently(t *testing.T) {
	seen := map[string]bool{}
	for _, names := range [][3]string{{"d", "n", "v"}, {"d", "n", "w"}, {"d", "o", "v"}, {"e", "n", "v"}, {"dn", "v", "w"}} {
		seen[diagnosis.DetachCommands(names[0], names[1], names[2])[2]] = true
	}
	if len(seen) != 5 {
		t.Errorf("got %d names, want 5: %v", len(seen), seen)
	}
}

func TestNothingIsDetachedByCommandWhereANameIsMissingOrCannotBePrinted(t *testing.T) {
	for _, names := range [][3]string{{"", "n", "v"}, {"d", "", "v"}, {"d", "n", ""}, {"d", "n\u202e", "v"}} {
		if got := diagnosis.DetachCommands(names[0], names[1], names[2]); got != nil {
			t.Errorf("%q: got %q", names, got)
		}
	}
}
