package lease

// Reach says whether a driver can be called from here. The values are in ascending order.
type Reach int

const (
	// Unreached: the driver could never be called, or not for so long that its lease is given
	// up. The lease is not taken.
	Unreached Reach = iota
	// Away: the driver could be called lately. The lease is taken only if no other process has
	// held it since the last term of this process, and if nobody took it for its duration.
	Away
	// JustAway: as Away, but the driver is mostly back in a moment, so the other replicas are
	// told that it can be called.
	JustAway
	// Callable: the driver can be called.
	Callable
)

// counts reports whether the driver counts as callable for the other replicas.
func (r Reach) counts() bool { return r >= JustAway }
