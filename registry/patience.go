package registry

import "time"

// patience is how long sources that say nothing are waited for. Its fields belong to
// the loop of the Registry.
type patience struct {
	options       Options
	first, settle *time.Timer
	begun         bool // first is over
	settled       bool // settle is over, counted from the Source that was started last
}

func newPatience(o Options) *patience {
	return &patience{options: o, first: time.NewTimer(o.First), settle: time.NewTimer(o.Settle)}
}

// again waits for a Source that was started just now.
func (p *patience) again() {
	p.settled = false
	p.settle.Reset(p.options.Settle)
}

// over says that a Snapshot is to go out without what the sources see that said nothing.
func (p *patience) over(isFirst bool) bool {
	if isFirst {
		return p.begun
	}
	return p.settled
}

func (p *patience) stop() {
	p.first.Stop()
	p.settle.Stop()
}
