package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	redrawEvery = 200 * time.Millisecond // on a terminal
	linesEvery  = time.Second            // elsewhere, and only changes
)

// display shows a board while something else goes on: redrawn in place on a
// terminal, as lines elsewhere. It ignores errors of writing: the scene goes on.
type display struct {
	out    io.Writer
	rows   func() []row
	size   func() (width, height int) // nil: out is no terminal
	colour bool
	ended  chan struct{} // closed when run has returned

	mu       sync.Mutex // guards all below and serializes what goes to out
	began    time.Time
	over     bool // nothing more is shown
	headline string
	drawn    int            // lines of the board that are on the terminal
	printed  map[string]row // what was last printed of each driver
}

// newDisplay shows the rows on out. It calls rows often.
func newDisplay(out io.Writer, rows func() []row) *display {
	d := &display{out: out, rows: rows, ended: make(chan struct{}), began: time.Now(), printed: map[string]row{}}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		d.size = func() (int, int) { return terminalSize(f) }
		d.colour = os.Getenv("NO_COLOR") == ""
	}
	return d
}

// terminalSize returns the present size, which users may change at any time.
func terminalSize(f *os.File) (width, height int) {
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// phase shows a new headline. What the caller does next is shown after it.
func (d *display) phase(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	d.show(func() {
		d.headline = text
		d.update()
		if d.size == nil {
			fmt.Fprintln(d.out, text)
		}
	})
}

// say shows a text that stays. What the caller does next is shown after it.
func (d *display) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	d.show(func() {
		if d.size != nil {
			d.draw(text)
			return
		}
		d.update() // what was before the text
		fmt.Fprintln(d.out, text)
	})
}

// show writes, unless run has returned.
func (d *display) show(write func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over {
		write()
	}
}

// run updates until ctx ends, and a last time then. It may be called once.
func (d *display) run(ctx context.Context) {
	defer close(d.ended)
	every := linesEvery
	if d.size != nil {
		every = redrawEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.show(d.update)
		case <-ctx.Done():
			d.show(func() {
				d.update()
				d.over = true
			})
			return
		}
	}
}

// update shows the rows as they are now. Called with mu held.
func (d *display) update() {
	if d.size != nil {
		d.draw()
		return
	}
	for _, r := range d.rows() {
		if last, ok := d.printed[r.Driver]; ok && last == r || !ok && r == (row{Driver: r.Driver}) {
			continue
		}
		d.printed[r.Driver] = r
		fmt.Fprintf(d.out, "  %v\n", r)
	}
}

// draw puts texts that stay above the board, and the board in its place. Called with mu held.
func (d *display) draw(above ...string) {
	width, height := d.size()
	b := board{headline: d.headline, elapsed: time.Since(d.began), rows: d.rows()}
	lines := b.lines(width)
	// Lines that scroll away cannot be drawn over.
	lines = lines[:min(len(lines), max(height-1, 1))]
	fmt.Fprint(d.out, repaint(min(d.drawn, height-1), above, lines, d.colour))
	d.drawn = len(lines)
}

// repaint returns what to write to a terminal whose cursor is below a board of so
// many lines.
func repaint(drawn int, above []string, lines []line, colour bool) string {
	var b strings.Builder
	if drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", drawn)
	}
	b.WriteString("\r\x1b[J") // the rest of the screen is the board's
	for _, text := range above {
		b.WriteString(text + "\n")
	}
	for _, l := range lines {
		if colour && l.style != "" {
			l.text = string(l.style) + l.text + reset
		}
		b.WriteString(l.text + "\n")
	}
	return b.String()
}
