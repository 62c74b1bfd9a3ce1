package status

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// HealthState says how urgently a person must look at a driver or at a volume.
type HealthState string

const (
	// Broken: the driver itself, its lease, its capabilities or its configuration is bad. A VolumeAttachment: it is stuck.
	Broken HealthState = "broken"
	// Attention: somebody should look at it. Volumes of the driver wait for long, fail or are stuck. A VolumeAttachment: its
	// last try failed, or it takes long.
	Attention HealthState = "attention"
	// Standby: another replica works for the driver, or its mode is paused. A VolumeAttachment: its driver is paused.
	Standby HealthState = "standby"
	Fine    HealthState = "fine"
)

// HealthStates are all states, the worst first.
var HealthStates = []HealthState{Broken, Attention, Standby, Fine}

// Compare orders states, the worst first.
func (s HealthState) Compare(other HealthState) int {
	return cmp.Compare(slices.Index(HealthStates, s), slices.Index(HealthStates, other))
}

// Health is the health of a driver or of a VolumeAttachment. All views of the hub show this one: the API, the
// pages, the metrics, the subcommands.
type Health struct {
	State HealthState `json:"state"`
	// Since is the earliest time of the reasons for State, of Standby that of the first; zero if that is not known.
	Since   time.Time `json:"since,omitzero"`
	Reasons []Reason  `json:"reasons,omitempty"` // the worst first
}

// Reason is a finding with the state that it alone would cause.
type Reason struct {
	State HealthState `json:"state"`
	diagnosis.Diagnosis
}

// slow returns the age from which work that waits and calls in flight need attention.
func (s Settings) slow() time.Duration {
	return min(slow, cmp.Or(s.StuckAfter.Duration, slow))
}

// text returns all reasons for people. It may repeat a driver's text: hostile.
func (h Health) text(now time.Time) (text string) {
	for _, r := range h.Reasons {
		text += r.Text(now) + "\n"
	}
	return text
}

// Needs reports whether somebody should look at it.
func (h Health) Needs() bool { return h.State == Broken || h.State == Attention }

// add adds a reason, unless the diagnosis is zero. A fact about the oldest of several has the age of it, or no
// word of it.
func (h *Health) add(s HealthState, d diagnosis.Diagnosis) {
	if d.Since.IsZero() {
		d.Fact = strings.TrimSuffix(d.Fact, ", the oldest")
	}
	if d.Verdict != "" {
		h.Reasons = append(h.Reasons, Reason{s, d})
	}
}

// settle sorts the reasons and derives the state from them. A detail that several reasons have is left to the worst of
// them.
func (h *Health) settle() {
	slices.SortStableFunc(h.Reasons, func(a, b Reason) int { return a.State.Compare(b.State) })
	h.State = Fine
	for i, r := range h.Reasons {
		if h.State = h.Reasons[0].State; r.State == h.State && (i == 0 || h.Needs()) {
			h.Since = earliest(h.Since, r.Since)
		}
		if slices.ContainsFunc(h.Reasons[:i], func(worse Reason) bool { return worse.Detail == r.Detail }) {
			h.Reasons[i].Detail = ""
		}
	}
}

const (
	// startupTimeout is how long a driver may be without a connection, or its lease without a
	// holder, before it needs attention.
	startupTimeout = 30 * time.Second
	// slow is the age from which work that waits and calls in flight need attention, unless stuckAfter is shorter.
	slow = time.Minute
	// lately is how long a write of another attacher counts.
	lately = time.Hour
)
