package statustable

import (
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
	for name, o := range map[string]TextOptions{
		"pipe":       {},
		"color":      {Style: Style{Color: true}},
		"wide":       {Style: Style{Width: 80}, Wide: true},
		"columns-80": {Style: Style{Width: 80}}, "columns-120": {Style: Style{Width: 120}}, "columns-200": {Style: Style{Width: 200, Color: true}},
	} {
		t.Run(name, func(t *testing.T) {
			text := report().Text(o)
			golden(t, "status-"+name, text)
			_, tables, _ := strings.Cut(uncolored(text), "\n") // without the summary
			tables, _, _ = strings.Cut(tables, "\nProblems:")
			for line := range strings.Lines(tables) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); o.Width > 0 && !o.Wide && n > o.Width {
					t.Errorf("a line has %d characters: %s", n, line)
				}
			}
		})
	}
}

func TestColorIsTheOnlyDifferenceOnATerminal(t *testing.T) {
	with, without := report().Text(TextOptions{Style: Style{Color: true}}), report().Text(TextOptions{})
	if with == without || uncolored(with) != without {
		t.Errorf("got\n%s\nwant, without colours,\n%s", with, without)
	}
}

func TestSummaryCountsWhatIsInTrouble(t *testing.T) {
	driver := func(s status.HealthState, queued, delayed, stuck int) hubclient.Driver {
		return hubclient.Driver{Driver: status.Driver{Name: string(s), Health: status.Health{State: s}, Lanes: []status.Lane{{Queued: queued, Delayed: delayed, Stuck: stuck}}}}
	}
	fine, broken, attention, standby := driver(status.Fine, 0, 0, 0), driver(status.Broken, 20, 5, 10), driver(status.Attention, 5, 1, 2), driver(status.Standby, 1, 0, 0)
	elsewhere := driver(status.Standby, 0, 0, 0)
	elsewhere.Leader = "hub-2"
	one := hubclient.Replica{Replica: "a", Overview: status.Overview{Identity: "hub-1", Replicas: []status.Replica{{Identity: "hub-1"}, {Identity: "hub-2"}}}}
	answered, silent := hubclient.Replica{Replica: "a"}, hubclient.Replica{Replica: "b", Error: "no"}
	rejected := hubclient.Replica{Replica: "a", Overview: status.Overview{Config: status.Config{Errors: []string{"drivers.yaml:3: no"}}}}
	volume := func(s status.HealthState) status.Attachment {
		return status.Attachment{Name: "v", Health: status.Health{State: s}}
	}
	for _, test := range []struct {
		drivers  []hubclient.Driver
		replicas []hubclient.Replica
		volumes  []status.Attachment
		listErr  error
		want     string
		worst    status.HealthState
	}{
		{nil, nil, nil, nil, "No driver is served", status.Fine},
		{[]hubclient.Driver{fine}, nil, nil, nil, "1 driver, none in trouble; no volume waits", status.Fine},
		{[]hubclient.Driver{fine, standby}, nil, nil, nil, "2 drivers, none in trouble; 1 volume waits", status.Standby},
		{[]hubclient.Driver{fine, attention}, nil, nil, nil, "1 of 2 drivers needs attention; 6 volumes wait, 2 of them stuck", status.Attention},
		{[]hubclient.Driver{attention, fine, attention}, nil, nil, nil, "2 of 3 drivers need attention; 12 volumes wait, 4 of them stuck", status.Attention},
		{[]hubclient.Driver{broken, fine, attention, fine}, nil, nil, nil, "1 of 4 drivers broken, 1 needs attention; 31 volumes wait, 12 of them stuck", status.Broken},
		{[]hubclient.Driver{fine}, []hubclient.Replica{answered, silent}, nil, nil, "1 driver, none in trouble; no volume waits; 1 of 2 replicas does not answer", status.Attention},
		{[]hubclient.Driver{fine, elsewhere}, []hubclient.Replica{one}, nil, nil, "2 drivers, none in trouble; no volume waits; 1 driver is served by a replica that did not answer or was not asked", status.Standby},
		{[]hubclient.Driver{fine}, []hubclient.Replica{rejected}, nil, nil, "1 driver, none in trouble; no volume waits", status.Attention},
		{[]hubclient.Driver{fine}, nil, []status.Attachment{volume(status.Broken)}, nil, "1 driver, none in trouble; no volume waits", status.Broken},
		{[]hubclient.Driver{fine}, nil, nil, errors.New("not listed"), "1 driver, none in trouble; no volume waits", status.Attention},
	} {
		var trouble List
		for _, a := range test.volumes {
			trouble.Add(a)
		}
		r := NewReport(hubclient.View{Drivers: test.drivers, Replicas: test.replicas}, &trouble, test.listErr, now)
		if got := r.Summary.text(); got != test.want || r.Summary.Health != test.worst {
			t.Errorf("got %q, %s, want %q, %s", got, r.Summary.Health, test.want, test.worst)
		}
		if text := r.Text(TextOptions{}); !strings.HasPrefix(text, test.want+"; as of 03:04:05 UTC\n") || test.listErr != nil && !strings.Contains(text, "not listed") {
			t.Errorf("the text is\n%s", text)
		}
	}
}

func TestDriversAreShownTheWorstAndThenTheLongestInTroubleFirst(t *testing.T) {
	driver := func(name string, s status.HealthState, since time.Time) hubclient.Driver {
		return hubclient.Driver{Driver: status.Driver{Name: name, Health: status.Health{State: s, Since: since}}}
	}
	v := hubclient.View{Drivers: []hubclient.Driver{driver("a", status.Fine, time.Time{}), driver("b", status.Broken, ago(time.Minute)), driver("c", status.Attention, ago(time.Hour)),
		driver("d", status.Broken, ago(time.Hour)), driver("e", status.Broken, time.Time{}), driver("f", status.Broken, ago(time.Hour)), driver("g", status.Standby, time.Time{})}}
	var order string
	_, table, _ := strings.Cut(NewReport(v, &List{}, nil, now).Text(TextOptions{}), "\n") // without the summary
	for line := range strings.Lines(table) {
		if name, _, found := strings.Cut(line, " "); found && len(name) == 1 {
			order += name
		}
	}
	if want := "dfbecga"; order != want {
		t.Errorf("the order is %s, want %s", order, want)
	}
	if v.Drivers[0].Name != "a" {
		t.Error("the JSON is not by name any more")
	}
}

func TestOldestCountsCallsInFlight(t *testing.T) {
	for want, lane := range map[string]status.Lane{
		"":    {},
		"60m": {OldestSince: ago(time.Minute), OldestCall: status.Call{Since: ago(time.Hour)}},
		"2m":  {OldestSince: ago(2 * time.Minute), OldestCall: status.Call{Since: ago(time.Second)}},
	} {
		if got := oldest(lane, now); got != want && got != want+"0s" {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestJSONHasTheOldFieldsAndTheNewOnes(t *testing.T) {
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
		Unclaimed        map[string]int
		AsOf             time.Time
		Summary          Summary
		VolumesInTrouble []status.Attachment
		Problems         []string
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Replicas) != 3 || len(got.Drivers) != 6 || got.Drivers[0].Name != "fail.example.com" || got.Drivers[0].Leader != "hub-0_abc" || got.Unclaimed["stray.example.com"] != 3 {
		t.Errorf("the old fields are %+v", got)
	}
	if got.Drivers[0].Health.State != status.Attention || !got.AsOf.Equal(now) || got.Summary.Drivers.Broken != 2 || got.Summary.Volumes.Attention != 15 || got.Summary.Health != status.Broken ||
		len(got.VolumesInTrouble) != 17 || got.VolumesInTrouble[0].State != status.Stuck || len(got.Problems) != 3 {
		t.Errorf("the new fields are %+v", got)
	}
	empty, err := json.Marshal(NewReport(hubclient.Merge(nil), &List{}, nil, now))
	if err != nil || !strings.Contains(string(empty), `"volumesInTrouble":[]`) {
		t.Errorf("without trouble: %s, %v", empty, err)
	}
}
