package explain

import (
	"cmp"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

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
	cause    string   // the fact without its age
}

// found returns a finding whose age is not known.
func found(verdict diagnosis.Verdict, object, fact, next string) Finding {
	return Finding{Verdict: verdict, Object: object, Fact: fact, Next: next, cause: fact}
}

// finding returns a diagnosis, which the status page shows too, as a Finding.
func (f *Facts) finding(d diagnosis.Diagnosis) Finding {
	all := found(d.Verdict, d.Object, d.Text(f.Now), cmp.Or(strings.Join(d.Actions, " "), "Wait."))
	all.Age = ageOf(cmp.Or(d.Since, d.Last), f.Now)
	all.cause = diagnosis.Because(d.Fact, d.Detail)
	all.Commands = f.through(d.Commands)
	return all
}

// lasting returns a finding that holds since a time. detail says why, and may be empty.
func (f *Facts) lasting(verdict diagnosis.Verdict, object, fact string, since time.Time, detail, next string) Finding {
	return f.finding(diagnosis.Diagnosis{Verdict: verdict, Object: object, Fact: fact, Since: since, Detail: detail, Actions: []string{next}})
}

// action returns what to do about a verdict, as the status page says it.
func (w *walk) action(v diagnosis.Verdict) string {
	return diagnosis.Cause{Verdict: v}.Action(w.NodeName, w.VolumeName, "")
}
