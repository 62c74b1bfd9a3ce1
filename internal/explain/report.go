package explain

import (
	"slices"

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
		switch {
		case slices.ContainsFunc(s.Checks, func(c status.Check) bool { return !c.OK }):
			return 1
		case s.checksUnknown:
			return NotKnown.ExitCode()
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
	// Groups are the VolumeAttachments of the question, the worst first. if it is about a driver or a node.
	// Volumes is empty then.
	Groups []Group `json:"groups,omitempty"`
	// More is how many VolumeAttachments are in trouble and in no group: see MostExplained.
	More int `json:"more,omitempty"`
	// Unknown says what could not be read.
	Unknown []string `json:"unknown,omitempty"`
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
