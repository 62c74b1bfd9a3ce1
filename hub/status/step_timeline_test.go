package status

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// course makes steps one after the other from a time.
type course struct {
	at    time.Time
	steps []Step
}

func courseFrom(t time.Time) *course { return &course{at: t} }

// instant adds a step without length.
func (c *course) instant(kind StepKind, what string) *course {
	c.steps = append(c.steps, Step{Kind: kind, What: what, Time: c.at})
	return c
}

// took adds a step with a length.
func (c *course) took(kind StepKind, what string, length time.Duration, err string) *course {
	c.steps = append(c.steps, Step{Kind: kind, What: what, Time: c.at, Until: c.at.Add(length), Error: err})
	c.at = c.at.Add(length)
	return c
}

// waitedForWorker is an attach that waited 41 s of 52 s for a worker.
func waitedForWorker(begun time.Time) *course {
	return courseFrom(begun).instant(StepCreated, "").instant(StepSeen, "").took(StepWaited, "a worker of the driver", 41*time.Second, "").
		took(StepWrote, "the finalizers and notes", 30*time.Millisecond, "").took(StepCalled, "ControllerPublishVolume", 10950*time.Millisecond, "").
		took(StepWrote, "the status", 20*time.Millisecond, "").instant(StepDone, "")
}

// retried is an attach with n failed tries, that waits for the next one.
func retried(begun time.Time, n int, err string) *course {
	c := courseFrom(begun).instant(StepCreated, "").instant(StepSeen, "").took(StepWrote, "the finalizers and notes", 30*time.Millisecond, "")
	for i := range n {
		c.took(StepCalled, "ControllerPublishVolume", 2*time.Second, err)
		c.took(StepWrote, "the error to the status", 20*time.Millisecond, "")
		if i < n-1 {
			c.took(StepWaited, "the next try", time.Duration(1<<i)*time.Second, "")
		}
	}
	return c.instant(StepWaited, "the next try")
}

// lines are the rows of a timeline as the page and explain show them.
func lines(t Timeline) string {
	text := fmt.Sprintf("total %s\n", t.Total())
	for _, r := range t.Rows {
		text += strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Beginning(), r.Length(), r.Text, r.Error)) + "\n"
	}
	return text + t.Most
}

func TestATimelineSaysWhereTheTimeWent(t *testing.T) {
	begun := time.Date(2026, 3, 4, 3, 0, 0, 0, time.UTC)
	now := begun.Add(time.Hour)
	for _, tt := range []struct {
		name  string
		steps []Step
		open  bool
		now   time.Time
		want  string
	}{
		{"attached", waitedForWorker(begun).steps, false, now, `total 52s
0s  VolumeAttachment created
0s  seen by the hub
0s 41s waited for a worker of the driver
41s 30ms wrote the finalizers and notes
41s 10s called ControllerPublishVolume
51s 20ms wrote the status
52s  done
waited 41s of 52s for a worker of the driver`},
		{"a call is in flight", waitedForWorker(begun).steps[:4:4], true, begun.Add(41 * time.Second), `total 41s
0s  VolumeAttachment created
0s  seen by the hub
0s 41s waited for a worker of the driver
41s 30ms wrote the finalizers and notes
waited 41s of 41s for a worker of the driver`},
		{"it hangs", courseFrom(begun).instant(StepCreated, "").instant(StepSeen, "").instant(StepCalled, "ControllerPublishVolume").steps, true, begun.Add(8 * time.Minute), `total 8m
0s  VolumeAttachment created
0s  seen by the hub
0s 8m calls ControllerPublishVolume
waited 8m of 8m for the driver to answer ControllerPublishVolume`},
		{"retries", retried(begun, 5, "array busy").steps, true, begun.Add(30 * time.Second), `total 30s
0s  VolumeAttachment created
0s  seen by the hub
0s 30ms wrote the finalizers and notes
30ms 25s called ControllerPublishVolume, which failed 5 times: 10s in the tries, 15s between them array busy
25s 20ms wrote the error to the status
25s 4.9s waits for the next try
waited 19s of 30s for the next try`},
		{"the hub was away", []Step{{Kind: StepCreated, Time: begun}, {Kind: StepSeen, Time: begun.Add(time.Minute)}, {Kind: StepDone, Time: begun.Add(time.Minute)}}, false, now, `total 60s
0s  VolumeAttachment created
0s 60s waited for the hub to see it
60s  seen by the hub
60s  done
waited 60s of 60s for the hub to see it`},
		{"clocks differ", []Step{{Kind: StepCreated, Time: begun}, {Kind: StepSeen, Time: begun.Add(-time.Minute)}, {Kind: StepWaited, What: "other work", Time: begun.Add(-time.Minute)}}, true, begun.Add(-30 * time.Second), `total 0s
0s  VolumeAttachment created
0s  seen by the hub
0s 0s waits for other work
`},
		{"steps are not kept", courseFrom(begun).instant(StepCreated, "").took(StepCalled, "ControllerPublishVolume", time.Second, "busy").took(StepOmitted, "8 steps, of which 4 failed", time.Minute, "").
			took(StepCalled, "ControllerPublishVolume", time.Second, "busy").took(StepCalled, "ControllerPublishVolume", time.Second, "busy").steps, true, begun.Add(63 * time.Second), `total 63s
0s  VolumeAttachment created
0s 1s called ControllerPublishVolume busy
1s 60s left out: 8 steps, of which 4 failed
61s 2s called ControllerPublishVolume, which failed 2 times: 2s in the tries, 0s between them busy
spent 60s of 63s in 8 steps, of which 4 failed`},
		{"none", nil, true, now, "total 0s\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := lines(NewTimeline(tt.steps, tt.open, tt.now, 50)); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestALongTimelineIsCutInTheMiddle(t *testing.T) {
	begun := time.Date(2026, 3, 4, 3, 0, 0, 0, time.UTC)
	c := courseFrom(begun).instant(StepCreated, "")
	for i := range 100 {
		c.took(StepWaited, fmt.Sprint("thing ", i), time.Second, "")
	}
	got := NewTimeline(c.instant(StepDone, "").steps, false, begun.Add(time.Hour), 5)
	want := "total 100s\n0s  VolumeAttachment created\n0s 1s waited for thing 0\n1s 98s left out: 98 steps\n99s 1s waited for thing 99\n100s  done\nwaited 1s of 100s for thing 0"
	if text := lines(got); strings.ReplaceAll(text, "1m40s", "100s") != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestFailuresOfDifferentStepsAreDifferentRows(t *testing.T) {
	c := courseFrom(time.Unix(1700000000, 0)).took(StepWrote, "the finalizers", time.Second, "forbidden").took(StepWaited, "the next try", time.Second, "").
		took(StepCalled, "ControllerPublishVolume", time.Second, "busy").took(StepWaited, "the next try", time.Second, "").took(StepCalled, "ControllerPublishVolume", time.Second, "busier")
	rows := NewTimeline(c.steps, true, c.at, 50).Rows
	if len(rows) != 3 || rows[0].Tries != 0 || rows[2].Tries != 2 || rows[2].Error != "busier" || rows[2].Seconds != 3 {
		t.Errorf("got %+v", rows)
	}
}
