package registry

import "time"

// longestUnrest is how many times the debounce a file may be disturbed before it
// is believed as it is.
const longestUnrest = 10

// settlingReader reads a file that somebody may be writing. It believes a new
// content after the file has been left alone for the debounce, and is the same
// after another one. It belongs to one goroutine.
type settlingReader struct {
	file     string
	debounce time.Duration
	used     string // id of the content that was taken last

	timer  *time.Timer // nil: nothing is expected
	began  time.Time   // of the disturbance that goes on
	seen   string      // id of the content read last during it
	chosen *content    // to be taken
}

// disturb says that the file may have changed.
func (r *settlingReader) disturb() {
	if r.timer == nil {
		r.began = time.Now()
		r.timer = time.NewTimer(r.debounce)
	} else if time.Since(r.began) < longestUnrest*r.debounce {
		r.timer.Reset(r.debounce)
	}
}

// due wakes when settle is to be called.
func (r *settlingReader) due() <-chan time.Time {
	if r.timer == nil {
		return nil
	}
	return r.timer.C
}

// settle reads the file and decides whether it rests.
func (r *settlingReader) settle() {
	c := readContent(r.file)
	if c.id == r.used || c.id == r.seen || time.Since(r.began) >= longestUnrest*r.debounce {
		r.choose(c)
		return
	}
	r.seen = c.id
	r.timer.Reset(r.debounce)
}

// now reads the file and believes it.
func (r *settlingReader) now() { r.choose(readContent(r.file)) }

func (r *settlingReader) choose(c content) {
	r.stop()
	if c.id != r.used {
		r.used, r.chosen = c.id, &c
	}
}

// take returns a new content once.
func (r *settlingReader) take() (content, bool) {
	if r.chosen == nil {
		return content{}, false
	}
	c := *r.chosen
	r.chosen = nil
	return c, true
}

// stop ends the disturbance.
func (r *settlingReader) stop() {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer, r.seen = nil, ""
}
