package statustable

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

func TestVolumesShowPodAndClaimFirstAndTheWorstFirst(t *testing.T) {
	v, all := fleet()
	var list List
	for _, i := range rand.Perm(len(all)) {
		list.Add(all[i])
	}
	for name, test := range map[string]struct {
		columns Columns
		style   Style
	}{
		"pipe":        {Columns{Headers: true}, Style{}},
		"no-headers":  {Columns{}, Style{}},
		"wide":        {Columns{Headers: true, Wide: true}, Style{Width: 80}},
		"columns-120": {Columns{Headers: true}, Style{Width: 120, Color: true}},
		"columns-60":  {Columns{Headers: true}, Style{Width: 60}},
	} {
		t.Run(name, func(t *testing.T) {
			text := VolumeTable(list.Worst(), v, test.columns, test.style, now)
			golden(t, "volumes-"+name, text)
			if lines := strings.Count(text, "\n"); test.style.Width == 0 && lines > len(all)+1 {
				t.Errorf("%d lines for %d volumes: a line is a volume in a pipe", lines, len(all))
			}
			for line := range strings.Lines(uncolored(text)) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > test.style.Width && test.style.Width > 0 && !test.columns.Wide && name != "columns-60" {
					t.Errorf("a line has %d characters: %s", n, line)
				}
			}
		})
	}
}

func TestAListKeepsTheWorstAndCountsAll(t *testing.T) {
	bounded, whole := List{Most: 7}, List{}
	for i := range 1000 {
		a := status.Attachment{Name: fmt.Sprint(i), State: status.AttachmentStates[rand.N(len(status.AttachmentStates))], Since: ago(time.Duration(rand.N(50)) * time.Second),
			Health: status.Health{State: status.HealthStates[rand.N(len(status.HealthStates))]}}
		if i%10 == 0 {
			a.Since = time.Time{}
		}
		bounded.Add(a)
		whole.Add(a)
	}
	all := whole.Worst()
	name := func(a, b status.Attachment) int { return cmp.Compare(a.Name, b.Name) }
	if got := bounded.Worst(); len(all) != 1000 || bounded.Total != 1000 || !slices.EqualFunc(got, all[:7], func(a, b status.Attachment) bool { return name(a, b) == 0 }) {
		t.Errorf("kept %v of %d, want the first of %v", got, bounded.Total, all[:7])
	}
	sum := 0
	for _, s := range status.HealthStates {
		sum += bounded.In(s)
	}
	if sum != 1000 || bounded.In(status.Broken) != whole.In(status.Broken) {
		t.Errorf("counted %d by health", sum)
	}
	for i, a := range all[1:] {
		b := all[i] // before a
		if a.Health.State == b.Health.State && a.State == b.State && b.Since.IsZero() && !a.Since.IsZero() {
			t.Fatalf("%+v, of unknown age, is before %+v", b, a)
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
		if got := groups([]status.Attachment{volume(0, func(*status.Attachment) {}), volume(1, test.change)}); len(got) != test.want {
			t.Errorf("%s: %d lines, want %d", name, len(got), test.want)
		}
	}
	waits := func(kind status.WaitKind, node string) func(*status.Attachment) {
		return func(a *status.Attachment) {
			a.State, a.Tries, a.LastError = status.Waiting, 0, ""
			a.SetWaiting(status.Wait{Kind: kind, Node: node})
		}
	}
	got := groups([]status.Attachment{volume(0, waits(status.WaitForDetach, "a")), volume(1, waits(status.WaitForDetach, "b")), volume(2, waits(status.WaitForWorker, "")), volume(3, waits(status.WaitForNode, ""))})
	if len(got) != 3 || len(got[0]) != 2 {
		t.Errorf("%d lines for three kinds of waiting", len(got))
	}
}

func TestTheTableOfTroubleIsShortAndSaysHowManyAreLeftOut(t *testing.T) {
	var worst []status.Attachment
	for i := range 25 {
		worst = append(worst, status.Attachment{Name: fmt.Sprint(i), Driver: fmt.Sprint("driver-", i), State: status.Stuck, Health: status.Health{State: status.Broken}})
	}
	text := troubleTable(worst, 40, Style{}, now)
	if !strings.Contains(text, "\nand 30 more: csi-attach-hub volumes\n") || strings.Count(text, "driver-") != mostGroups {
		t.Errorf("got\n%s", text)
	}
}

func TestATextIsBrokenAtSpacesAndCutAtTheLastLine(t *testing.T) {
	for _, test := range []struct {
		text        string
		width, most int
		want        string
	}{
		{"one two three", 20, 2, "one two three"},
		{"one two three", 8, 2, "one two|three"},
		{"one two three four", 8, 2, "one two|three f…"},
		{"onetwothreefour", 5, 9, "onetw|othre|efour"},
		{"Gerät größer", 6, 9, "Gerät|größer"},
		{"a b", 0, 9, "a|b"},
		{strings.Repeat("x", 50), 10, 1, "xxxxxxxxx…"},
	} {
		got := wrap(test.text, test.width, test.most)
		if strings.Join(got, "|") != test.want {
			t.Errorf("%q in %d: got %q, want %q", test.text, test.width, got, test.want)
		}
		for _, line := range got {
			if utf8.RuneCountInString(line) > max(2, test.width) {
				t.Errorf("%q is longer than %d", line, test.width)
			}
		}
	}
}
