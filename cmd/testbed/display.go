package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

const (
	redrawEvery = 200 * time.Millisecond // on a terminal
	linesEvery  = time.Second            // elsewhere, and only what changed
)

// display shows a board while something else goes on: redrawn in place on a
// terminal, as lines elsewhere.
type display struct {
	out    io.Writer
	rows   func() []row
	size   func() (width, height int) // nil: out is no terminal
	colour bool
	said   chan message
	ended  chan struct{} // closed when run has returned
}

// message is something to be shown now.
type message struct {
	text     string
	headline bool          // it says which phase it is
	shown    chan struct{} // closed when it is
}

// newDisplay shows the rows on out. rows is called from run, often.
func newDisplay(out io.Writer, rows func() []row) *display {
	d := &display{out: out, rows: rows, said: make(chan message), ended: make(chan struct{})}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		d.size = func() (int, int) { return terminalSize(f) }
		d.colour = os.Getenv("NO_COLOR") == ""
	}
	return d
}

// terminalSize is asked each time, because windows change.
func terminalSize(f *os.File) (width, height int) {
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// phase says which phase it is from now on.
func (d *display) phase(format string, args ...any) {
	d.show(message{text: fmt.Sprintf(format, args...), headline: true})
}

// say shows a text that stays.
func (d *display) say(format string, args ...any) {
	d.show(message{text: fmt.Sprintf(format, args...)})
}

// show blocks until the message is shown, so that what the caller does next
// cannot be seen before it.
func (d *display) show(m message) {
	m.shown = make(chan struct{})
	select {
	case d.said <- m:
		<-m.shown
	case <-d.ended:
	}
}

// run shows until ctx ends, and then how things are at that moment. All output
// is made here. It may be called once.
func (d *display) run(ctx context.Context) {
	defer close(d.ended)
	p := painter{display: d, began: time.Now()}
	every := linesEvery
	if d.size != nil {
		every = redrawEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case m := <-d.said:
			p.message(m)
			close(m.shown)
		case <-tick.C:
			p.update()
		case <-ctx.Done():
			p.update()
			return
		}
	}
}

// painter is a display that runs. What cannot be written is lost: the scene is
// played all the same.
type painter struct {
	*display
	began    time.Time
	headline string
	drawn    int            // lines of the board that are on the terminal
	printed  map[string]row // what was last said of each driver
}

func (p *painter) message(m message) {
	if m.headline {
		p.headline = m.text
	}
	switch {
	case p.size == nil:
		p.update() // what was before the message
		fmt.Fprintln(p.out, m.text)
	case m.headline:
		p.update()
	default:
		p.draw(m.text)
	}
}

func (p *painter) update() {
	if p.size != nil {
		p.draw()
		return
	}
	for _, r := range p.rows() {
		if last, ok := p.printed[r.Driver]; ok && last == r || !ok && r == (row{Driver: r.Driver}) {
			continue
		}
		if p.printed == nil {
			p.printed = map[string]row{}
		}
		p.printed[r.Driver] = r
		fmt.Fprintf(p.out, "  %v\n", r)
	}
}

// draw puts texts that stay above the board, and the board in its place.
func (p *painter) draw(above ...string) {
	width, height := p.size()
	b := board{headline: p.headline, elapsed: time.Since(p.began), rows: p.rows()}
	lines := b.lines(width)
	// What has scrolled away could not be drawn over.
	lines = lines[:min(len(lines), max(height-1, 1))]
	fmt.Fprint(p.out, repaint(min(p.drawn, height-1), above, lines, p.colour))
	p.drawn = len(lines)
}

// repaint is what to write to a terminal whose cursor is below a board of so
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
