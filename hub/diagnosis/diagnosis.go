package diagnosis

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Diagnosis is one finding about an object: something that is wrong, or that somebody should know. Its
// texts may repeat those of drivers: hostile. The zero value says that nothing is wrong. In JSON, empty
// fields are left out, except Verdict, Object and Fact.
type Diagnosis struct {
	Verdict Verdict `json:"verdict"`
	Object  string  `json:"object"` // "driver ebs.csi.aws.com", "VolumeAttachment csi-1"
	// Fact says what was found, as a predicate of Object: "cannot be called at unix:///csi/a.sock". It has no
	// time that passes: see Since.
	Fact    string    `json:"fact"`
	Since   time.Time `json:"since,omitzero"`    // when Fact began to be true; zero if that is not known
	Last    time.Time `json:"last,omitzero"`     // when it happened last, if Fact is an event; zero if that is not known
	Detail  string    `json:"detail,omitempty"`  // why: often the text of an error
	Actions []string  `json:"actions,omitempty"` // what to do, the most useful first, as sentences; empty: nothing, or wait
	// Commands are shell commands that do the first of Actions, in order. What a person must fill in is in capitals.
	Commands []string `json:"commands,omitempty"`
}

// New returns a diagnosis.
func New(v Verdict, object, fact, detail string, actions ...string) Diagnosis {
	return Diagnosis{Verdict: v, Object: object, Fact: fact, Detail: detail, Actions: actions}
}

// From returns the diagnosis of a fact that began to be true at a time.
func (d Diagnosis) From(since time.Time) Diagnosis { d.Since = since; return d }

// Text returns the fact for people: "cannot be called at unix:///csi/a.sock for 8m12s: connection refused",
// "answered Internal to ControllerPublishVolume (12s ago): array busy".
func (d Diagnosis) Text(now time.Time) string {
	text := d.Fact
	if !d.Since.IsZero() {
		text += " for " + Length(now.Sub(d.Since))
	}
	if !d.Last.IsZero() {
		text += " (" + Ago(d.Last, now) + ")"
	}
	return Because(text, d.Detail)
}

// Line returns Text for a row or a page about an object of a kind, "driver" or "VolumeAttachment". It names the kind
// of another object: "driver answered Internal to ControllerPublishVolume".
func (d Diagnosis) Line(of string, now time.Time) string {
	kind, _, _ := strings.Cut(d.Object, " ")
	if kind == of || kind == "" {
		return d.Text(now)
	}
	return strings.Replace(kind, "Lease", "lease", 1) + " " + d.Text(now)
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
func Length(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

// Ago writes how long ago a time is: "35s ago".
func Ago(t, now time.Time) string { return Length(now.Sub(t)) + " ago" }

// At writes a time, and how long ago that is.
func At(t, now time.Time) string { return t.UTC().Format(time.RFC3339) + " (" + Ago(t, now) + ")" }
