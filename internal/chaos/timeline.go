package chaos

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"
)

// timeline keeps what has happened, in order, in memory and in a file. A nil timeline keeps nothing.
type timeline struct {
	mu    sync.Mutex // guards all below
	file  *os.File
	out   *bufio.Writer
	lines []line
}

// line is one entry of a timeline.
type line struct {
	at    time.Time
	about string // a volume, a driver or a hub; empty: everything
	text  string
	whole bool // it is shown although it repeats another line
}

// clock is how lines tell their time.
const clock = "15:04:05.000"

func (l line) String() string {
	const width = 240
	text := l.text
	if len(text) > width {
		text = text[:width] + "..."
	}
	return fmt.Sprintf("%s %s: %s", l.at.Format(clock), cmp.Or(l.about, "all"), text)
}

// openTimeline makes the file. The caller must close the timeline.
func openTimeline(path string) (*timeline, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("make timeline: %w", err)
	}
	return &timeline{file: file, out: bufio.NewWriter(file)}, nil
}

func (t *timeline) close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.out.Flush(); err != nil {
		return fmt.Errorf("write timeline: %w", err)
	}
	return t.file.Close()
}

// add adds a line about a volume, a driver, a hub, or everything.
func (t *timeline) add(about, format string, args ...any) {
	if t == nil {
		return
	}
	l := line{at: time.Now(), about: about, text: fmt.Sprintf(format, args...)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, l)
	fmt.Fprintln(t.out, l) // close returns the error
}

// last returns the last n lines until a time: those about any of the names or everything, merged with
// more. It leaves out a line that repeats one shortly before it.
func (t *timeline) last(n int, until time.Time, more []line, about ...string) []line {
	found := slices.Clone(more)
	if t == nil {
		return found
	}
	t.mu.Lock()
	for _, l := range t.lines {
		if l.about == "" || slices.Contains(about, l.about) {
			found = append(found, l)
		}
	}
	t.mu.Unlock()
	slices.SortStableFunc(found, func(x, y line) int { return x.at.Compare(y.at) })
	var told []line
	said := map[string]int{} // index of its last line, by text without numbers
	for _, l := range found {
		if l.at.After(until) {
			break
		}
		key := l.about + numbers.ReplaceAllString(l.text, "")
		if at, ok := said[key]; ok && !l.whole && len(told)-at < alike {
			continue
		}
		said[key] = len(told)
		told = append(told, l)
	}
	return told[max(0, len(told)-n):]
}

// alike is within how many lines a repetition is left out.
const alike = 6

var numbers = regexp.MustCompile("[0-9]+")
