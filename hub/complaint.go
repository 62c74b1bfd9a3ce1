package hub

import "time"

// How often a driver that cannot be reached is logged: seldom while it is the same
// thing over and over, sooner when it is another one.
const (
	complainSame  = 10 * time.Minute
	complainOther = time.Minute
)

// complaint keeps a driver that is away from flooding the log.
type complaint struct {
	what string
	when time.Time
}

// due says whether something is to be logged now, and takes it as logged if so.
func (c *complaint) due(what string, now time.Time) bool {
	quiet := complainOther
	if what == c.what {
		quiet = complainSame
	}
	if !c.when.IsZero() && now.Sub(c.when) < quiet {
		return false
	}
	c.what, c.when = what, now
	return true
}
