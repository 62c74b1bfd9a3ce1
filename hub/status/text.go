package status

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	// Bytes of a foreign text that a list shows, and the page of its object.
	shortText = 300
	longText  = 8 << 10
)

// sanitize bounds the length of a foreign text and replaces characters that would hide or reverse
// the text beside it. It does not escape.
func sanitize(text string, limit int) string {
	rest := len(text) - limit
	if rest > 0 {
		text = text[:limit]
	}
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if rest > 0 {
		text += fmt.Sprintf(" … (%s more bytes)", count(rest))
	}
	return strings.TrimSpace(text)
}

// duration returns a latency in one or two units: 850 ms, 12 s, 3 min 20 s, 5 h. Ages are written by package
// diagnosis.
func duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(1, d.Milliseconds()))
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return units(d/time.Minute, "min", d%time.Minute/time.Second, "s")
	case d < day:
		return units(d/time.Hour, "h", d%time.Hour/time.Minute, "min")
	}
	return units(d/day, "d", d%day/time.Hour, "h")
}

// units omits the smaller unit where it is 0 or small beside the larger one.
func units(large time.Duration, name string, small time.Duration, smallName string) string {
	if small == 0 || large >= 10 {
		return fmt.Sprintf("%d %s", large, name)
	}
	return fmt.Sprintf("%d %s %d %s", large, name, small, smallName)
}

// count returns a number with commas: 10,000.
func count(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// plural returns a number with its noun.
func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + more
}

// ordinal returns 1st, 2nd, 3rd, 11th.
func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return count(n) + suffix
}
