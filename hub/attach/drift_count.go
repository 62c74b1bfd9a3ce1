package attach

// DriftCount counts the listings in a row that show a difference, by what the difference is about. The
// lists of storage systems are often late, so one listing proves little. The zero value is ready for
// use. It is not safe for concurrent use.
type DriftCount[Key comparable] struct {
	streaks map[Key]streak
}

// streak is a difference and the number of listings in a row that have shown it.
type streak struct {
	kind     DriftKind
	listings int
}

// Add counts one listing. found has the differences that the listing shows. Add returns, in no order,
// the keys whose difference was shown by as many listings in a row as confirmations says, and counts
// them from zero again. It resets the count of all keys that are not in found, or are DriftNone there.
// A listing that failed must not be added.
func (c *DriftCount[Key]) Add(found map[Key]DriftKind, confirmations int) []Key {
	var confirmed []Key
	streaks := make(map[Key]streak, len(found))
	for key, kind := range found {
		if kind == DriftNone {
			continue
		}
		s := streak{kind: kind, listings: 1}
		if before := c.streaks[key]; before.kind == kind {
			s.listings += before.listings
		}
		if s.listings >= confirmations {
			confirmed = append(confirmed, key)
		} else {
			streaks[key] = s
		}
	}
	c.streaks = streaks
	return confirmed
}

// Pending reports whether a difference needs another listing.
func (c *DriftCount[Key]) Pending() bool { return len(c.streaks) > 0 }
