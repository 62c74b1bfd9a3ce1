package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
)

// colorChoices are the values of --color.
var colorChoices = []string{"auto", "always", "never"}

const colorUsage = "`when` to use colours: auto (on a terminal, unless $NO_COLOR is set), always or never"

// screen is where a subcommand prints: a terminal, or a pipe or a file.
type screen struct {
	out      io.Writer
	file     *os.File // the terminal; nil for a pipe or a file
	color    bool
	wasDrawn bool // redraw has drawn before
}

// newScreen returns a screen for a writer. color is one of colorChoices.
func newScreen(out io.Writer, color string) (*screen, error) {
	if !slices.Contains(colorChoices, color) {
		return nil, fmt.Errorf("--color %q: write %s", color, orList(colorChoices))
	}
	s := &screen{out: out}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		s.file = file
	}
	s.color = color == "always" || color == "auto" && s.file != nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return s, nil
}

// style returns how to draw tables now: the size of a terminal changes.
func (s *screen) style() statustable.Style {
	width, _ := s.size()
	return statustable.Style{Width: width, Color: s.color}
}

// size returns the size of the terminal, 0 where there is none.
func (s *screen) size() (width, height int) {
	if s.file == nil {
		return 0, 0
	}
	width, height, err := term.GetSize(int(s.file.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// redraw puts a text in the place of the one before. In a pipe or a file, the time of the text stands between
// the two.
func (s *screen) redraw(text, at string) error {
	if s.file == nil {
		if s.wasDrawn {
			text = "\n" + at + "\n" + text
		} else {
			text = at + "\n" + text
		}
		s.wasDrawn = true
		_, err := io.WriteString(s.out, text)
		return err
	}
	_, height := s.size()
	_, err := io.WriteString(s.out, frame(text, height, !s.wasDrawn))
	s.wasDrawn = true
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

// orList returns words as "a, b or c".
func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
