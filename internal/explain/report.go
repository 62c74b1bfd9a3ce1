package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// Result sums up the state of the volumes. Of a driver and a node it is a status.HealthState.
type Result string

const (
	// Attached: all volumes are attached, or need no attach.
	Attached Result = "attached"
	// Waiting: at least one volume is not in the state that it should have.
	Waiting Result = "waiting"
	// NotFound: the object of the question does not exist.
	NotFound Result = "notFound"
	// NotKnown: what the answer needs could not be read. Report.Unknown says what.
	NotKnown Result = "unknown"
)

// ExitCode returns the exit code of the command.
func (r Result) ExitCode() int {
	switch r {
	case Waiting, Result(status.Broken), Result(status.Attention):
		return 1
	case NotFound:
		return 2
	case NotKnown:
		return 3
	}
	return 0
}

// ExitCode is that of the result, and not 0 while a check of the driver is open or the checklist is not known.
func (r Report) ExitCode() int {
	code := r.Result.ExitCode()
	if s := r.Subject; code == 0 && s != nil {
		if s.checksUnknown {
			return NotKnown.ExitCode()
		}
		if slices.ContainsFunc(s.Checks, func(c status.Check) bool { return !c.OK }) {
			return 1
		}
	}
	return code
}

// Report is the answer to a question.
type Report struct {
	Question Question `json:"question"`
	// Result is the health of the driver or of the node if the question is about these.
	Result Result `json:"result"`
	// Stop says why there is no volume to explain: the object does not exist, or has none.
	Stop *Finding `json:"stop,omitempty"`
	// Subject is the answer for the driver or the node of the question.
	Subject *SubjectReport `json:"subject,omitempty"`
	Volumes []VolumeReport `json:"volumes"`
	// VolumeAttachments are those of the driver that are in trouble, or all of the node, the worst first.
	VolumeAttachments []status.Attachment `json:"volumeAttachments,omitempty"`
	// Unknown says what could not be read.
	Unknown []string  `json:"unknown,omitempty"`
	AsOf    time.Time `json:"asOf"`
}

// VolumeReport is the answer for one volume on one node.
type VolumeReport struct {
	Title  string    `json:"title"`
	Result Result    `json:"result"`
	Age              // since the attach or the detach was asked for; only if Result is not Attached
	Path   []string  `json:"path"`            // what is as it should be, in the order of the walk
	Stop   *Finding  `json:"stop,omitempty"`  // the first problem; only if Result is Waiting
	Notes  []Finding `json:"notes,omitempty"` // further findings
}

// SubjectReport is the answer for a driver or a node.
type SubjectReport struct {
	Age               // of Report.Result
	Reasons []Reason  `json:"reasons"` // for Report.Result, the worst first
	Notes   []Finding `json:"notes,omitempty"`
	Facts   []string  `json:"facts"` // what else is known, as sentences
	// Checks are the conditions for serving the driver, as the hub sees them. None if the question is about a node.
	Checks        []status.Check `json:"checks,omitempty"`
	checksUnknown bool           // they could not be read
}

// Reason is a finding with the health that it alone would cause.
type Reason struct {
	Health status.HealthState `json:"health"`
	Finding
}

func (s *SubjectReport) add(health status.HealthState, f Finding) {
	s.Reasons = append(s.Reasons, Reason{health, f})
}

// Age says since when something holds, for programs. It is zero if that is not known.
type Age struct {
	Since      time.Time `json:"since,omitzero"`
	AgeSeconds int64     `json:"ageSeconds,omitempty"`
}

func ageOf(since, now time.Time) Age {
	if since.IsZero() {
		return Age{}
	}
	return Age{since.UTC(), int64(max(0, now.Sub(since)).Seconds())}
}

// Finding is a diagnosis.Diagnosis as `explain -o json` writes it. hub/diagnosis/verdict.go lists the
// verdicts.
type Finding struct {
	Verdict diagnosis.Verdict `json:"verdict"`
	Object  string            `json:"object"` // which it is about
	Fact    string            `json:"fact"`   // what was found, with its age
	Age                       // of the fact: since when it holds, or when it happened last
	Next    string            `json:"next,omitempty"` // what to do
	// Commands are shell commands that do it, in order. A word in capitals is to be filled in.
	Commands []string `json:"commands,omitempty"`
}

// found returns a finding whose age is not known.
func found(verdict diagnosis.Verdict, object, fact, next string) Finding {
	return Finding{Verdict: verdict, Object: object, Fact: fact, Next: next}
}

// finding returns a diagnosis, which the status page shows too, as a Finding.
func (e *explainer) finding(d diagnosis.Diagnosis) Finding {
	f := found(d.Verdict, d.Object, d.Text(e.now), cmp.Or(strings.Join(d.Actions, " "), "Wait."))
	f.Age, f.Commands = ageOf(cmp.Or(d.Since, d.Last), e.now), e.through(d.Commands)
	return f
}

// lasting returns a finding that holds since a time. detail says why, and may be empty.
func (e *explainer) lasting(verdict diagnosis.Verdict, object, fact string, since time.Time, detail, next string) Finding {
	return e.finding(diagnosis.Diagnosis{Verdict: verdict, Object: object, Fact: fact, Since: since, Detail: detail, Actions: []string{next}})
}
