package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
)

// screen is where a subcommand prints: a terminal, or a pipe or a file.
type screen struct {
	out      io.Writer
	file     *os.File // the terminal; nil for a pipe or a file
	wasDrawn bool     // redraw has drawn before
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		s.file = file
	}
	return s
}

// style returns how to draw tables now: the size of a terminal changes. wide is for all columns and whole texts.
func (s *screen) style(wide bool) statustable.Style {
	style := statustable.Style{Wide: wide, Color: s.file != nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if !wide {
		style.Width, _ = s.size()
	}
	return style
}

// size returns the size of the terminal, 0 where there is none.
func (s *screen) size() (width, height int) {
	if s.file != nil {
		width, height, _ = term.GetSize(int(s.file.Fd())) // 0 if it is not known
	}
	return width, height
}

// redraw puts a text in the place of the one before. In a pipe or a file, an empty line separates the two.
func (s *screen) redraw(text string) error {
	if s.file != nil {
		_, height := s.size()
		text = frame(text, height, !s.wasDrawn)
	} else if s.wasDrawn {
		text = "\n" + text
	}
	s.wasDrawn = true
	_, err := io.WriteString(s.out, text)
	return err
}

// frame returns what draws a text on a terminal of a height over the text that is there. It overwrites line by
// line, so that nothing flickers, and leaves what was scrolled out of sight. What does not fit is cut: a terminal
// that scrolls would keep the upper lines of each drawing.
func frame(text string, height int, first bool) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if height > 1 && len(lines) >= height {
		more := len(lines) - (height - 2)
		lines = append(lines[:height-2:height-2], fmt.Sprintf("... and %d more lines", more))
	}
	const noWrap, wrap = "\x1b[?7l", "\x1b[?7h" // a line that is too long is cut: it would take two lines
	begin := "\x1b[H" + noWrap
	if first {
		begin = strings.Repeat("\n", height) + begin // the text above moves out of sight, and is kept
	}
	return begin + strings.Join(lines, "\x1b[K\n") + "\x1b[K\n\x1b[J" + wrap
}
