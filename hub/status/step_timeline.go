package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// Timeline says where the time of an attach or a detach went.
type Timeline struct {
	Start   time.Time `json:"start"`
	Seconds float64   `json:"seconds"` // from Start to the end, or until now
	// Most says what took the most time: "waited 41s of 52s for a worker of the driver". It is empty if all was done
	// within a second.
	Most string         `json:"most,omitempty"`
	Rows []TimelineStep `json:"steps"`
}

// TimelineStep is one step of a Timeline, or several steps that are shown as one.
type TimelineStep struct {
	Kind    StepKind  `json:"kind"`
	Text    string    `json:"text"`  // may have a driver's own text: hostile
	Time    time.Time `json:"time"`  // its beginning
	After   float64   `json:"after"` // seconds from Timeline.Start to its beginning
	Seconds float64   `json:"seconds,omitempty"`
	Lasts   bool      `json:"lasts,omitempty"`
	Tries   int       `json:"tries,omitempty"` // failed tries in a row that this step stands for; 0 for one step
	Error   string    `json:"error,omitempty"` // of the last try; may be a driver's own text: hostile
}

// NewTimeline returns the timeline of steps in the order of their beginning. open: the operation has not ended, so that
// its time is counted until now. Failed tries in a row are one row, and rows above a limit are left out in the middle.
func NewTimeline(steps []Step, open bool, now time.Time, limit int) Timeline {
	steps = withUnseen(steps)
	if len(steps) == 0 {
		return Timeline{}
	}
	t := Timeline{Start: steps[0].Time}
	end := t.Start
	for _, s := range steps {
		open = open || s.Lasts()
		end = later(end, later(s.Time, s.Until))
	}
	if open {
		end = later(t.Start, now)
	}
	t.Seconds = end.Sub(t.Start).Seconds()
	for i := 0; i < len(steps); i++ {
		last, tries := failedTries(steps, i)
		t.Rows = append(t.Rows, t.row(steps[i:last+1], tries, end))
		i = last
	}
	t.Most = most(steps, end, end.Sub(t.Start))
	t.Rows = CutMiddle(t.Rows, limit)
	return t
}

// unseenFor is how long an object may be unseen without a step for it: its time of creation is in whole seconds.
const unseenFor = 2 * time.Second

// withUnseen adds the time between the creation of the VolumeAttachment and the moment when the hub saw it. It drops steps
// whose time is not known.
func withUnseen(steps []Step) []Step {
	var all []Step
	for i, s := range steps {
		if s.Time.IsZero() {
			continue
		}
		if i > 0 && s.Kind == StepSeen && steps[i-1].Kind == StepCreated && s.Time.Sub(steps[i-1].Time) >= unseenFor {
			all = append(all, Step{Kind: StepWaited, What: "the hub to see it", Time: steps[i-1].Time, Until: s.Time})
		}
		all = append(all, s)
	}
	return all
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// failedTries returns the last of the failed tries in a row that begin with step i, and their number. Between two of them
// there are the waits and the writes of the first.
func failedTries(steps []Step, i int) (last, n int) {
	last = i
	if steps[i].Error == "" {
		return last, 0
	}
	n = 1
	for k, s := range steps[i+1:] {
		switch {
		case s.Kind == StepDone || s.Kind == StepOmitted || s.Error != "" && (s.Kind != steps[i].Kind || s.What != steps[i].What):
			return last, n
		case s.Error != "":
			last, n = i+1+k, n+1
		}
	}
	return last, n
}

// row returns one row for one step, or for failed tries with what is between them.
func (t Timeline) row(steps []Step, tries int, end time.Time) TimelineStep {
	first, last := steps[0], steps[len(steps)-1]
	r := TimelineStep{Kind: first.Kind, Text: first.Text(), Time: first.Time, After: max(0, first.Time.Sub(t.Start).Seconds()),
		Seconds: min(t.Seconds, first.length(end).Seconds()), Lasts: first.Lasts(), Error: last.Error}
	if tries > 1 {
		var inside time.Duration
		for _, s := range steps {
			if s.Error != "" {
				inside += s.length(end)
			}
		}
		all := max(0, later(last.Time, last.Until).Sub(first.Time))
		r.Tries, r.Seconds = tries, all.Seconds()
		r.Text += fmt.Sprintf(", which failed %d times: %s in the tries, %s between them", tries, stepLength(inside), stepLength(all-inside))
	}
	return r
}

// most says what took the most time, all steps of one kind and object together.
func most(steps []Step, end time.Time, total time.Duration) string {
	sums := map[Step]time.Duration{}
	var longest Step
	for _, s := range steps { // the first of equals
		key := Step{Kind: s.Kind, What: s.What}
		if sums[key] += s.length(end); sums[key] > sums[longest] {
			longest = key
		}
	}
	took := min(sums[longest], total)
	if took < time.Second {
		return ""
	}
	what := longest.What
	switch longest.Kind {
	case StepOmitted:
		return fmt.Sprintf("spent %s of %s in %s", stepLength(took), stepLength(total), what)
	case StepCalled:
		what = "the driver to answer " + what
	case StepWrote:
		what = "the API server to write " + what
	case StepRead:
		what = "the API server to read " + what
	}
	return fmt.Sprintf("waited %s of %s for %s", stepLength(took), stepLength(total), what)
}

// CutMiddle returns at most limit rows: those in the middle are replaced by one that counts them.
func CutMiddle(rows []TimelineStep, limit int) []TimelineStep {
	if len(rows) <= limit {
		return rows
	}
	from, to := limit/2, len(rows)-(limit-1-limit/2)
	left := TimelineStep{Kind: StepOmitted, Text: Step{Kind: StepOmitted, What: plural(to-from, "step", "steps")}.Text(), Time: rows[from].Time, After: rows[from].After}
	left.Seconds = max(0, rows[to].After-left.After)
	return slices.Concat(rows[:from], []TimelineStep{left}, rows[to:])
}

// Total returns the time of the whole for people.
func (t Timeline) Total() string { return stepLength(seconds(t.Seconds)) }

// Beginning returns when the step began for people, from the beginning of the timeline: "11s".
func (s TimelineStep) Beginning() string { return stepLength(seconds(s.After)) }

// Length returns how long the step took, or has taken so far, "" for an instant.
func (s TimelineStep) Length() string {
	if s.Seconds == 0 && !s.Lasts {
		return ""
	}
	return stepLength(seconds(s.Seconds))
}

func seconds(s float64) time.Duration { return time.Duration(min(s, 1e9) * float64(time.Second)) } // 1e9: a duration has no more

// stepLength writes the length of a step: "3ms", "2.4s", "41s", "8m12s".
func stepLength(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + "s"
	}
	return diagnosis.Length(d)
}
