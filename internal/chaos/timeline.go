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

// timeline is what has happened, in order, in memory and in a file. A nil one keeps nothing.
type timeline struct {
	mu    sync.Mutex // guards all below
	file  *os.File
	out   *bufio.Writer
	lines []line
}

// line is one thing that has happened.
type line struct {
	at    time.Time
	about string // a volume, a driver, a hub; empty: everything
	text  string
}

func (l line) String() string {
	const width = 240
	text := l.text
	if len(text) > width {
		text = text[:width] + "..."
	}
	return fmt.Sprintf("%s %s: %s", l.at.Format("15:04:05.000"), cmp.Or(l.about, "all"), text)
}

// openTimeline makes the file. The caller must close it.
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

// add notes something about a volume, a driver, a hub, or everything.
func (t *timeline) add(about, format string, args ...any) {
	if t == nil {
		return
	}
	l := line{at: time.Now(), about: about, text: fmt.Sprintf(format, args...)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, l)
	fmt.Fprintln(t.out, l) // an error comes up again when it is closed
}

// last returns the last lines before a time about any of these, with more of them mixed in by time. What is said again and
// again is there once.
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
	said := map[string]int{} // where it was said last, without numbers
	for _, l := range found {
		if l.at.After(until) {
			break
		}
		key := l.about + numbers.ReplaceAllString(l.text, "")
		if at, ok := said[key]; ok && len(told)-at < alike {
			continue
		}
		said[key] = len(told)
		told = append(told, l)
	}
	return told[max(0, len(told)-n):]
}

// alike is within how many lines something is not said again.
const alike = 6

var numbers = regexp.MustCompile("[0-9]+")
