package diagnosis

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Diagnosis is one thing that is not as it should be, or that somebody should know. Its texts
// may repeat those of drivers: hostile. The zero value says that nothing is wrong.
type Diagnosis struct {
	Verdict Verdict
	Object  string   // which it is about: "driver ebs.csi.aws.com", "VolumeAttachment csi-1"
	Fact    string   // what was found, as the rest of a sentence after the object and a colon
	Actions []string // what to do, the most useful first, as sentences; empty: nothing, or to wait
}

// Summary returns object and fact as one sentence, "" for the zero value.
func (d Diagnosis) Summary() string {
	if d.Verdict == "" {
		return ""
	}
	return d.Object + ": " + Clause(d.Fact) + "."
}

// Clause returns a text without the full stop at its end, to be put into a sentence.
func Clause(text string) string { return strings.TrimRight(strings.TrimSpace(text), ".") }

// Because returns a fact with its reason, if that is known.
func Because(fact, reason string) string {
	if reason = Clause(reason); reason != "" {
		fact += ": " + reason
	}
	return fact
}

// Length writes a length of time in kubectl's way: "35s", "8m12s".
func Length(d time.Duration) string { return duration.HumanDuration(d) }

// Ago writes how long ago a time is: "35s ago".
func Ago(t, now time.Time) string { return Length(now.Sub(t)) + " ago" }

// At writes a time, and how long ago that is.
func At(t, now time.Time) string { return t.UTC().Format(time.RFC3339) + " (" + Ago(t, now) + ")" }
