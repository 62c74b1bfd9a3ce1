package statustable

import (
	"cmp"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// List collects VolumeAttachments and keeps the worst. The zero value keeps all.
type List struct {
	Most  int // to keep; 0: all
	Total int // of those that were added

	by      map[status.HealthState]int
	kept    []status.Attachment
	strings map[string]string
}

// Add adds a VolumeAttachment.
func (l *List) Add(a status.Attachment) {
	if l.by == nil {
		l.by, l.strings = map[status.HealthState]int{}, map[string]string{}
	}
	l.Total++
	l.by[a.Health.State]++
	l.share(&a.Driver, &a.Node, &a.LastError, &a.WaitsFor, (*string)(&a.State), (*string)(&a.Health.State), (*string)(&a.Operation))
	for i := range a.Health.Reasons {
		r := &a.Health.Reasons[i]
		l.share(&r.Fact, &r.Detail, (*string)(&r.State), (*string)(&r.Verdict))
		for j := range r.Actions {
			l.share(&r.Actions[j])
		}
	}
	l.kept = append(l.kept, a)
	if l.Most > 0 && len(l.kept) > 2*l.Most {
		l.kept = slices.Clip(l.Worst())
	}
}

// mostShared bounds the texts of which a List keeps one copy.
const mostShared = 10_000

// share replaces texts by the first copy of the same text: thousands of VolumeAttachments have few drivers and
// errors.
func (l *List) share(texts ...*string) {
	for _, text := range texts {
		if first, known := l.strings[*text]; known {
			*text = first
		} else if len(l.strings) < mostShared {
			l.strings[*text] = *text
		}
	}
}

// In returns how many of those that were added have a health.
func (l *List) In(s status.HealthState) int { return l.by[s] }

// Worst returns what was kept, the worst first. The List owns it.
func (l *List) Worst() []status.Attachment {
	slices.SortFunc(l.kept, worse)
	if l.Most > 0 && len(l.kept) > l.Most {
		clear(l.kept[l.Most:])
		l.kept = l.kept[:l.Most]
	}
	return l.kept
}

// urgency is the order of states of the same health.
var urgency = []status.AttachmentState{status.Stuck, status.Failing, status.Unclaimed, status.Waiting, status.Attaching, status.Detaching, status.Attached, status.Idle}

// worse orders VolumeAttachments: by health, then by state, then the oldest first, then by name.
func worse(a, b status.Attachment) int {
	return cmp.Or(a.Health.State.Compare(b.Health.State),
		cmp.Compare(slices.Index(urgency, a.State), slices.Index(urgency, b.State)),
		earlier(a.Since, b.Since), cmp.Compare(a.Name, b.Name))
}

// earlier orders times, those that are not known last.
func earlier(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		return b.Compare(a)
	}
	return a.Compare(b)
}
