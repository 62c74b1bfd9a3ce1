package explain

import (
	"cmp"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// Result is how far the volumes have come.
type Result string

const (
	// Attached: all that was asked for is attached, or needs not be.
	Attached Result = "attached"
	// Waiting: something is not as it should be yet.
	Waiting Result = "waiting"
	// NotFound: there is no such object.
	NotFound Result = "notFound"
	// NotKnown: what it takes to answer could not be read. Report.Unknown says what.
	NotKnown Result = "unknown"
)

// ExitCode returns that of the command.
func (r Result) ExitCode() int {
	return map[Result]int{Attached: 0, Waiting: 1, NotFound: 2, NotKnown: 3}[r]
}

// Report is the answer to a question.
type Report struct {
	Question Question `json:"question"`
	Result   Result   `json:"result"`
	// Stop says why there is nothing to walk along: there is no such object, or no volume.
	Stop    *Finding       `json:"stop,omitempty"`
	Volumes []VolumeReport `json:"volumes"`
	// Unknown says what could not be asked, and so is not known.
	Unknown []string `json:"unknown,omitempty"`
}

// VolumeReport is the answer for one volume on one node.
type VolumeReport struct {
	Title  string    `json:"title"`
	Result Result    `json:"result"`
	Path   []string  `json:"path"`            // what is in order, in the order of the walk
	Stop   *Finding  `json:"stop,omitempty"`  // where it stops; only if it is Waiting
	Notes  []Finding `json:"notes,omitempty"` // what else was found
}

// Finding is a diagnosis.Diagnosis as `explain -o json` writes it. hub/diagnosis/verdict.go lists the
// verdicts.
type Finding struct {
	Verdict diagnosis.Verdict `json:"verdict"`
	Object  string            `json:"object"`         // which it is about
	Fact    string            `json:"fact"`           // what was found
	Next    string            `json:"next,omitempty"` // what to do
}

// finding returns a diagnosis, which the status page shows too, as a Finding.
func finding(d diagnosis.Diagnosis) Finding {
	return Finding{d.Verdict, d.Object, d.Fact, cmp.Or(strings.Join(d.Actions, " "), "wait")}
}
