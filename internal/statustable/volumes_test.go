package statustable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

func TestVolumesShowPodAndClaimFirstAndTheWorstFirst(t *testing.T) {
	_, all := fleet()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	status.WorstFirst(all)
	for name, test := range map[string]struct {
		wide  bool
		style Style
	}{
		"pipe": {}, "wide": {wide: true}, "columns-120": {style: Style{Width: 120, Color: true}}, "columns-80": {style: Style{Width: 80}},
	} {
		t.Run(name, func(t *testing.T) {
			text := Volumes(slices.Chunk(all, 1), test.wide, now).Text(test.style)
			golden(t, "volumes-"+name, text)
			if lines := strings.Count(text, "\n"); test.style.Width == 0 && lines > len(all)+1 {
				t.Errorf("%d lines for %d volumes: a line is a volume in a pipe", lines, len(all))
			}
			for line := range strings.Lines(uncolored(text)) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > test.style.Width && test.style.Width > 0 {
					t.Errorf("a line has %d characters: %s", n, line)
				}
			}
		})
	}
}

func TestAReportHasTheWorstAndCountsAll(t *testing.T) {
	var all []status.Attachment
	broken := 0
	for i := range mostInTrouble + 10 {
		a := status.Attachment{Name: fmt.Sprint(i), State: status.Failing, Health: status.Health{State: status.Attention}}
		if rand.N(10) == 0 {
			a.State, a.Health.State, broken = status.Stuck, status.Broken, broken+1
		}
		all = append(all, a)
	}
	r := NewReport(hubclient.View{}, all, nil, now)
	if n := r.Summary.Volumes; len(r.VolumesInTrouble) != mostInTrouble || n.Broken != broken || n.Attention != len(all)-broken {
		t.Errorf("%d of %d volumes, %d of them broken, are %d, counted %+v", mostInTrouble, len(all), broken, len(r.VolumesInTrouble), n)
	}
	for i, a := range r.VolumesInTrouble {
		if (a.Health.State == status.Broken) != (i < broken) {
			t.Fatalf("%s is at place %d, and %d are broken", a.Health.State, i, broken)
		}
	}
}

func TestVolumesInTroubleForTheSameReasonAreOneLine(t *testing.T) {
	volume := func(i int, change func(*status.Attachment)) status.Attachment {
		a := status.Attachment{Name: fmt.Sprint("csi-", i), Driver: "d", Node: fmt.Sprint("node-", i), PersistentVolume: fmt.Sprint("pv-", i), State: status.Failing, Operation: status.Attach, Tries: i + 1,
			Since: ago(time.Hour), LastErrorTime: ago(time.Duration(i) * time.Second), LastError: fmt.Sprintf("rpc error: code = Internal desc = volume pv-%d is gone", i)}
		change(&a)
		a.Health = status.HealthOfAttachment(status.DiagnosisInput{Attachment: a, Now: now,
			Driver: &status.Driver{Name: a.Driver, Up: true, State: "Ready", Mode: "active", Lease: status.Lease{Mine: true}}})
		return a
	}
	for name, test := range map[string]struct {
		change func(*status.Attachment) // of the second of two
		want   int
	}{
		"the same error": {func(*status.Attachment) {}, 1},
		"another error":  {func(a *status.Attachment) { a.LastError = "rpc error: code = Internal desc = no rights" }, 2},
		"another code": {func(a *status.Attachment) {
			a.LastCause = diagnosis.Cause{Verdict: diagnosis.BackendError, Code: "Aborted"}
		}, 2},
		"another driver":      {func(a *status.Attachment) { a.Driver = "e" }, 2},
		"a detach":            {func(a *status.Attachment) { a.Operation = status.Detach }, 2},
		"stuck":               {func(a *status.Attachment) { a.State = status.Stuck }, 2},
		"its call unanswered": {func(a *status.Attachment) { a.Call.Since = ago(time.Hour) }, 2},
	} {
		if got := rows(volume(0, func(*status.Attachment) {}), volume(1, test.change)); len(got) != test.want {
			t.Errorf("%s: %d lines, want %d", name, len(got), test.want)
		}
	}
	waits := func(kind status.WaitKind, node string) func(*status.Attachment) {
		return func(a *status.Attachment) {
			a.State, a.Tries, a.LastError = status.Waiting, 0, ""
			a.Waiting = status.Wait{Kind: kind, Node: node}
		}
	}
	got := rows(volume(0, waits(status.WaitForDetach, "a")), volume(1, waits(status.WaitForDetach, "a")), volume(4, waits(status.WaitForDetach, "b")), volume(2, waits(status.WaitForWorker, "")), volume(3, waits(status.WaitForNode, "")))
	if len(got) != 4 || !slices.ContainsFunc(got, func(r Row) bool { return strings.HasPrefix(r.Texts[0], "×2: ") }) {
		t.Errorf("%d lines for waiting for four things", len(got))
	}
}

// rows are those of volumes in trouble.
func rows(all ...status.Attachment) []Row {
	t, _ := NewReport(hubclient.View{}, all, nil, now).troubleTable(false)
	return t.Rows
}

func TestTheTableOfTroubleIsShortAndSaysHowManyAreLeftOut(t *testing.T) {
	var worst []status.Attachment
	for i := range 40 {
		worst = append(worst, status.Attachment{Name: fmt.Sprint(i), Driver: fmt.Sprint("driver-", i), State: status.Stuck, Health: status.Health{State: status.Broken}})
	}
	text := NewReport(hubclient.View{}, worst, nil, now).Text(Style{})
	if !strings.Contains(text, "\nand 30 more: csi-attach-hub volumes\n") || strings.Count(text, "driver-") != mostGroups {
		t.Errorf("got\n%s", text)
	}
}

func TestATextIsBrokenAtSpacesAndCutAtTheLastLine(t *testing.T) {
	for _, test := range []struct {
		text  string
		width int
		want  string
	}{
		{"one two three", 20, "one two three"},
		{"one two three", 8, "one two|three"},
		{"one two three four five six", 8, "one two|three|four fi…"},
		{"onetwothreefour", 5, "onetw|othre|efour"},
		{"Gerät größer", 6, "Gerät|größer"},
		{"a b", 1, "a|b"},
		{strings.Repeat("x", 50), 10, "xxxxxxxxxx|xxxxxxxxxx|xxxxxxxxx…"},
		{strings.Repeat("x", 50), 0, strings.Repeat("x", 50)}, // no terminal
		{"", 10, ""},
	} {
		got := Wrap(test.text, test.width, mostLines)
		if strings.Join(got, "|") != test.want {
			t.Errorf("%q in %d: got %q, want %q", test.text, test.width, got, test.want)
		}
		for _, line := range got {
			if test.width > 0 && utf8.RuneCountInString(line) > test.width {
				t.Errorf("%q is longer than %d", line, test.width)
			}
		}
	}
}
