package attach

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// DriftCount counts the listings in a row that show a difference. The lists of storage systems are
// often late, so one listing proves little. The zero value is ready for use. It is not safe for
// concurrent use.
type DriftCount struct {
	streaks map[types.UID]streak // by UID of the VolumeAttachment
}

// streak is a difference and the number of listings in a row that have shown it.
type streak struct {
	kind     DriftKind
	listings int
}

// Add counts one listing. found has the differences that the listing shows, by UID of the
// VolumeAttachment. Add returns, sorted, the UIDs whose difference was shown by as many listings in
// a row as confirmations says, and counts them from zero again. It resets the count of all UIDs
// that are not in found, or are DriftNone there. A listing that failed must not be added.
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

// Pending reports whether a difference needs another listing.
func (c *DriftCount) Pending() bool { return len(c.streaks) > 0 }
