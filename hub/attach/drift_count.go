package attach

// DriftCount finds the differences that two listings in a row show, by what the difference is about. The
// lists of storage systems are often late, so one listing proves little. The zero value is ready for
// use. It is not safe for concurrent use.
type DriftCount[Key comparable] struct {
	once map[Key]DriftKind // that the last listing showed for the first time
}

// Add takes in one listing. found has the differences that the listing shows. Add returns, in no order,
// the keys whose difference the listing before showed too, and begins anew with them. A listing that failed
// must not be added.
func (c *DriftCount[Key]) Add(found map[Key]DriftKind) []Key {
	var confirmed []Key
	once := make(map[Key]DriftKind, len(found))
	for key, kind := range found {
		switch {
		case kind == DriftNone:
		case c.once[key] == kind:
			confirmed = append(confirmed, key)
		default:
			once[key] = kind
		}
	}
	c.once = once
	return confirmed
}

// Pending reports whether a difference needs another listing.
func (c *DriftCount[Key]) Pending() bool { return len(c.once) > 0 }
