package status

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// position is the place of a VolumeAttachment in the lists of the pages: the worst health first, then what is
// due before what is done, then the oldest, then by name. A list that begins after a position has every
// VolumeAttachment that keeps its place, also while others come and go.
type position struct {
	rank  int
	since int64 // when the operation became due, in Unix nanoseconds; 0 if none is due
	name  string
}

func positionOf(a Attachment) position {
	p := position{rank: 2 * slices.Index(HealthStates, a.Health.State), name: a.Name}
	switch {
	case !open(a):
		p.rank++
	case a.Since.IsZero(): // not known: after those whose age is known
		p.since = math.MaxInt64
	default:
		p.since = a.Since.UnixNano()
	}
	return p
}

func (p position) compare(other position) int {
	return cmp.Or(cmp.Compare(p.rank, other.rank), cmp.Compare(p.since, other.since), cmp.Compare(p.name, other.name))
}

// String returns the position for a URL, and parsePosition reads it.
func (p position) String() string { return fmt.Sprintf("%d.%d.%s", p.rank, p.since, p.name) }

// parsePosition returns the position before all others if the text is none.
func parsePosition(text string) position {
	first := position{rank: -1}
	parts := strings.SplitN(text, ".", 3)
	if len(parts) < 3 {
		return first
	}
	rank, wrongRank := strconv.Atoi(parts[0])
	since, wrongSince := strconv.ParseInt(parts[1], 10, 64)
	if wrongRank != nil || wrongSince != nil {
		return first
	}
	return position{rank, since, parts[2]}
}

// WorstFirst sorts VolumeAttachments as all lists of the hub have them: the worst health first, then what is due before
// what is done, then the oldest, then by name.
func WorstFirst(all []Attachment) {
	slices.SortFunc(all, func(a, b Attachment) int { return positionOf(a).compare(positionOf(b)) })
}

// open reports whether an operation is due for a VolumeAttachment.
func open(a Attachment) bool {
	return a.State != Attached && a.State != Idle && (a.State != Unclaimed || a.Operation != "")
}
