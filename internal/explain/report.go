package explain

import (
	"cmp"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// Result sums up the state of the volumes.
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
	return map[Result]int{Attached: 0, Waiting: 1, NotFound: 2, NotKnown: 3}[r]
}

// Report is the answer to a question.
type Report struct {
	Question Question `json:"question"`
	Result   Result   `json:"result"`
	// Stop says why there is no volume to explain: the object does not exist, or has none.
	Stop    *Finding       `json:"stop,omitempty"`
	Volumes []VolumeReport `json:"volumes"`
	// Unknown says what could not be read.
	Unknown []string `json:"unknown,omitempty"`
}

// VolumeReport is the answer for one volume on one node.
type VolumeReport struct {
	Title  string    `json:"title"`
	Result Result    `json:"result"`
	Path   []string  `json:"path"`            // what is as it should be, in the order of the walk
	Stop   *Finding  `json:"stop,omitempty"`  // the first problem; only if Result is Waiting
	Notes  []Finding `json:"notes,omitempty"` // further findings
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
func (f *Facts) finding(d diagnosis.Diagnosis) Finding {
	return Finding{d.Verdict, d.Object, d.Text(f.Now), cmp.Or(strings.Join(d.Actions, " "), "wait")}
}

// action returns what to do about a verdict, as the status page says it.
func (w *walk) action(v diagnosis.Verdict) string {
	return diagnosis.Cause{Verdict: v}.Action(w.NodeName, w.VolumeName)
}
