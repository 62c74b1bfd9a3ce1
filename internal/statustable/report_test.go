package statustable

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares a text with a file, and checks that nothing in it changes a terminal but the program's colours.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, r := range uncolored(got) {
		if r != '\n' && !unicode.IsGraphic(r) {
			t.Errorf("%q is in the text", r)
		}
	}
}

var painted = regexp.MustCompile("\x1b\\[[0-9;]+m")

func uncolored(text string) string { return painted.ReplaceAllString(text, "") }

func TestStatusShowsEveryKindOfTrouble(t *testing.T) {
	for name, style := range map[string]Style{
		"pipe": {}, "color": {Color: true},
		"columns-80": {Width: 80}, "columns-120": {Width: 120}, "columns-200": {Width: 200, Color: true},
	} {
		t.Run(name, func(t *testing.T) {
			text := report().Text(style)
			golden(t, "status-"+name, text)
			tables, _, _ := strings.Cut(uncolored(text), "\nProblems:")
			for line := range strings.Lines(tables) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); style.Width > 0 && n > style.Width {
					t.Errorf("a line has %d characters: %s", n, line)
				}
			}
		})
	}
}

func TestColorIsTheOnlyDifferenceOnATerminal(t *testing.T) {
	with, without := report().Text(Style{Color: true}), report().Text(Style{})
	if with == without || uncolored(with) != without {
		t.Errorf("got\n%s\nwant, without colours,\n%s", with, without)
	}
}

func TestSummaryCountsWhatIsInTrouble(t *testing.T) {
	driver := func(s status.HealthState, queued, delayed, stuck int) hubclient.Driver {
		return hubclient.Driver{Driver: status.Driver{Name: string(s), Up: true, Health: status.Health{State: s}, Lanes: []status.Lane{{Queued: queued, Delayed: delayed, Stuck: stuck}}}}
	}
	fine, broken, attention, standby := driver(status.Fine, 0, 0, 0), driver(status.Broken, 20, 5, 10), driver(status.Attention, 5, 1, 2), driver(status.Standby, 1, 0, 0)
	answered, silent := hubclient.Replica{Replica: "a"}, hubclient.Replica{Replica: "b", Error: "no"}
	rejected := hubclient.Replica{Replica: "a", Overview: status.Overview{Config: status.Config{Errors: []string{"drivers.yaml:3: no"}}}}
	volume := func(s status.HealthState) status.Attachment {
		return status.Attachment{Name: "v", State: status.Stuck, Health: status.Health{State: s}}
	}
	for _, test := range []struct {
		drivers  []hubclient.Driver
		replicas []hubclient.Replica
		volumes  []status.Attachment
		listErr  error
		want     string
		worst    status.HealthState
	}{
		{nil, nil, nil, nil, "no driver is served", status.Standby},
		{[]hubclient.Driver{fine}, nil, nil, nil, "all drivers answer", status.Fine},
		{[]hubclient.Driver{fine, standby}, nil, nil, nil, "all drivers answer", status.Standby},
		{[]hubclient.Driver{fine, attention}, nil, nil, nil, "1 driver needs attention", status.Attention},
		{[]hubclient.Driver{broken, fine, attention, fine}, nil, nil, nil, "1 driver broken; 1 driver needs attention", status.Broken},
		{[]hubclient.Driver{fine}, []hubclient.Replica{answered, silent}, nil, nil, "1 problem with the replicas; all drivers answer", status.Attention},
		{[]hubclient.Driver{fine}, []hubclient.Replica{rejected}, nil, nil, "configuration rejected (1 mistake); all drivers answer", status.Attention},
		{[]hubclient.Driver{fine}, nil, []status.Attachment{volume(status.Broken)}, nil, "1 volume stuck; all drivers answer", status.Broken},
		{[]hubclient.Driver{fine}, nil, nil, errors.New("not listed"), "1 problem with the replicas; all drivers answer", status.Attention},
	} {
		r := NewReport(hubclient.View{Drivers: test.drivers, Replicas: test.replicas}, test.volumes, test.listErr, now)
		if r.Summary.Health != test.worst {
			t.Errorf("%s: the health is %s, want %s", test.want, r.Summary.Health, test.worst)
		}
		if text := r.Text(Style{}); !strings.HasPrefix(text, test.want+"; as of 03:04:05 UTC\n") || test.listErr != nil && !strings.Contains(text, "not listed") {
			t.Errorf("the text is\n%s\nwant %s", text, test.want)
		}
	}
}

func TestDriversAreShownTheWorstFirst(t *testing.T) {
	driver := func(name string, s status.HealthState) hubclient.Driver {
		return hubclient.Driver{Driver: status.Driver{Name: name, Health: status.Health{State: s}}}
	}
	v := hubclient.View{Drivers: []hubclient.Driver{driver("a", status.Fine), driver("b", status.Broken), driver("c", status.Attention), driver("d", status.Broken), driver("e", status.Standby)}}
	var order string
	_, table, _ := strings.Cut(NewReport(v, nil, nil, now).Text(Style{}), "\n") // without the summary
	for line := range strings.Lines(table) {
		if name, _, found := strings.Cut(line, " "); found && len(name) == 1 {
			order += name
		}
	}
	if want := "bdcea"; order != want {
		t.Errorf("the order is %s, want %s", order, want)
	}
	if v.Drivers[0].Name != "a" {
		t.Error("the JSON is not by name any more")
	}
}

func TestADriverShowsWhatItsTableHasNoColumnFor(t *testing.T) {
	for want, d := range map[string]status.Driver{
		"Ready -":           {State: "Ready", Mode: "active"},
		"Ready (observe) -": {State: "Ready", Mode: "observe"},
		"Ready 60m":         {State: "Ready", Lanes: []status.Lane{{OldestSince: ago(time.Minute), OldestCall: status.Call{Since: ago(time.Hour)}}}},
		"Ready 2m":          {State: "Ready", Lanes: []status.Lane{{OldestSince: ago(2 * time.Minute), OldestCall: status.Call{Since: ago(time.Second)}}}},
	} {
		cells := NewReport(hubclient.View{Drivers: []hubclient.Driver{{Driver: d}}}, nil, nil, now).driverTable().Rows[0].Cells
		if got := cells[2] + " " + cmp.Or(cells[8], "-"); got != want && got != want+"0s" {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestJSONHasTheMergedAnswersAndTheSummary(t *testing.T) {
	body, err := json.Marshal(report())
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Replicas []struct{ Replica, Error string }
		Drivers  []struct {
			Name, State, Replica, Leader string
			Health                       status.Health
		}
		Unserved         map[string]int
		AsOf             time.Time
		Summary          Summary
		VolumesInTrouble []status.Attachment
		Problems         []string
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Replicas) != 3 || len(got.Drivers) != 6 || got.Drivers[0].Name != "fail.example.com" || got.Drivers[0].Leader != "hub-0_abc" || got.Unserved["stray.example.com"] != 3 {
		t.Errorf("the merged answers are %+v", got)
	}
	if got.Drivers[0].Health.State != status.Attention || !got.AsOf.Equal(now) || got.Summary.Drivers[status.Broken] != 2 || got.Summary.Volumes.Attention != 15 || got.Summary.Health != status.Broken ||
		len(got.VolumesInTrouble) != 17 || got.VolumesInTrouble[0].Health.State != status.Broken || len(got.Problems) != 3 {
		t.Errorf("the summary is %+v", got)
	}
	empty, err := json.Marshal(NewReport(hubclient.Merge(nil), nil, nil, now))
	if err != nil || !strings.Contains(string(empty), `"volumesInTrouble":[]`) {
		t.Errorf("without trouble: %s, %v", empty, err)
	}
}
