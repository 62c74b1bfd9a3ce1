package torture

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// line is one entry of a history for people.
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

// add adds a line about a volume, a driver, a hub, or everything.
func (h *history) add(about, format string, args ...any) {
	if h == nil {
		return
	}
	l := line{at: time.Now(), about: about, text: fmt.Sprintf(format, args...)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, l)
	h.print("line", l.String())
}

// last returns the last n lines until a time: those about any of the names or everything, merged with
// more. It leaves out a line that repeats one shortly before it.
func (h *history) last(n int, until time.Time, more []line, about ...string) []line {
	found := slices.Clone(more)
	if h == nil {
		return found
	}
	h.mu.Lock()
	for _, l := range h.lines {
		if l.about == "" || slices.Contains(about, l.about) {
			found = append(found, l)
		}
	}
	h.mu.Unlock()
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
