package attach

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// DriftCount counts in how many listings in a row a difference has been seen. Storage
// systems are often late with what they list, so one listing proves little. The
// zero value has seen nothing. It is not safe for concurrent use.
type DriftCount struct {
	streaks map[types.UID]streak // by UID of the VolumeAttachment
}

// streak is a difference and how many listings in a row have shown it.
type streak struct {
	kind     DriftKind
	listings int
}

// Add takes in what one listing has shown, by UID of the VolumeAttachment, and
// returns, sorted, those of which it is the confirmations-th listing in a row that
// shows the same. Their count starts anew. What is not in found, or is DriftNone
// there, is forgotten: it agrees, could not be told, was worked on or is gone. A
// listing that failed shows nothing and is not for Add.
func (c *DriftCount) Add(found map[types.UID]DriftKind, confirmations int) []types.UID {
	var confirmed []types.UID
	streaks := make(map[types.UID]streak, len(found))
	for uid, kind := range found {
		if kind == DriftNone {
			continue
		}
		s := streak{kind: kind, listings: 1}
		if before := c.streaks[uid]; before.kind == kind {
			s.listings += before.listings
		}
		if s.listings >= confirmations {
			confirmed = append(confirmed, uid)
		} else {
			streaks[uid] = s
		}
	}
	c.streaks = streaks
	slices.Sort(confirmed)
	return confirmed
}

// Pending says whether there are differences that wait for another listing.
func (c *DriftCount) Pending() bool { return len(c.streaks) > 0 }
