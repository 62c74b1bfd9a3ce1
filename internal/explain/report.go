package explain

import (
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// Report is the answer to a question.
type Report struct {
	Question Question `json:"question"`
	// Result is the health of the driver or of the node if the question is about these.
	Result Result `json:"result"`
	// Stop says why there is no volume to explain: the object does not exist, or has none.
	Stop *diagnosis.Diagnosis `json:"stop,omitempty"`
	// Subject is the answer for the driver or the node of the question.
	Subject *SubjectReport `json:"subject,omitempty"`
	Volumes []VolumeReport `json:"volumes"`
	// VolumeAttachments are those of the driver that are in trouble, or all of the node, the worst first.
	VolumeAttachments []status.Attachment `json:"volumeAttachments,omitempty"`
	// Unknown says what could not be read.
	Unknown []string  `json:"unknown,omitempty"`
	AsOf    time.Time `json:"asOf"`
}

// Result sums up the state of the volumes. Of a driver and a node it is a status.HealthState.
type Result string

const (
	// Attached: all volumes that need an attach are attached.
	Attached Result = "attached"
	// Attention: a volume is attached, and cannot be attached again. Of a driver and a node it is status.Attention.
	Attention = Result(status.Attention)
	// NotNeeded: no volume needs an attach.
	NotNeeded Result = "notNeeded"
	// Waiting: at least one volume is not in the state that it should have.
	Waiting Result = "waiting"
	// NotFound: the object of the question does not exist.
	NotFound Result = "notFound"
	// NotUnique: several objects have the name of the question.
	NotUnique Result = "notUnique"
	// NotKnown: what the answer needs could not be read. Report.Unknown says what.
	NotKnown Result = "unknown"
)

// ExitCode returns the exit code of the command.
func (r Result) ExitCode() int {
	switch r {
	case Waiting, Attention, Result(status.Broken):
		return 1
	case NotFound, NotUnique:
		return 2
	case NotKnown:
		return 3
	}
	return 0
}

// ExitCode is that of the result, and not 0 while a volume of the driver or the node is in trouble, a check of the driver is
// open or one of these could not be read.
func (r Report) ExitCode() int {
	code, s := r.Result.ExitCode(), r.Subject
	switch {
	case code != 0 || s == nil:
		return code
	case r.inTrouble() > 0, slices.ContainsFunc(s.Checks, func(c status.Check) bool { return !c.OK }):
		return 1
	case s.incomplete:
		return NotKnown.ExitCode()
	}
	return 0
}

// inTrouble counts the VolumeAttachments that somebody should look at.
func (r Report) inTrouble() int {
	return len(slices.DeleteFunc(slices.Clone(r.VolumeAttachments), func(a status.Attachment) bool { return !a.Health.Needs() }))
}

// VolumeReport is the answer for one volume on one node.
type VolumeReport struct {
	Title  string                `json:"title"`
	Result Result                `json:"result"`
	Since  time.Time             `json:"since,omitzero"`  // when the attach or the detach was required; only if Result is Waiting, and if that is known
	Path   []string              `json:"path"`            // what is as it should be, in the order of the walk
	Stop   *diagnosis.Diagnosis  `json:"stop,omitempty"`  // the first problem; only if Result is Waiting or Attention
	Notes  []diagnosis.Diagnosis `json:"notes,omitempty"` // further findings
}

// SubjectReport is the answer for a driver or a node.
type SubjectReport struct {
	status.Health `json:"health"`       // of which Report.Result is the State
	Notes         []diagnosis.Diagnosis `json:"notes,omitempty"`
	Details       []string              `json:"facts"` // what else is known, as sentences
	// Checks are the conditions for serving the driver, as the hub sees them. None if the question is about a node.
	Checks     []status.Check `json:"checks,omitempty"`
	incomplete bool           // the hub's checklist or list of VolumeAttachments could not be read
}

func (s *SubjectReport) add(state status.HealthState, d diagnosis.Diagnosis) {
	s.Reasons = append(s.Reasons, status.Reason{State: state, Diagnosis: d})
}

// found returns a finding with what to do.
func found(verdict diagnosis.Verdict, object, fact, action string) diagnosis.Diagnosis {
	return diagnosis.New(verdict, object, fact, "", action)
}

// finding returns a finding of the hub with commands that reach the cluster of explain, and without the advice to run the
// command that is running, or another one for an answer that is in the report.
func (e *explainer) finding(d diagnosis.Diagnosis) diagnosis.Diagnosis {
	answered := []string{string(e.question.Kind) + "/" + e.question.Name} // of a driver
	for _, v := range e.volumes {
		if v.va.value != nil {
			answered = append(answered, v.va.value.Name)
		}
	}
	running := func(text string) bool {
		return slices.ContainsFunc(answered, func(question string) bool { return strings.Contains(text+" ", "csi-attach-hub explain "+question+" ") })
	}
	d.Actions, d.Commands = slices.DeleteFunc(slices.Clone(d.Actions), running), slices.DeleteFunc(slices.Clone(d.Commands), running)
	d.Commands = e.through(d.Commands)
	return d
}
