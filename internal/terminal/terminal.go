// Package terminal makes texts from outside safe to print. The error of a CSI driver may
// contain sequences that recolour a terminal, rename its window, overwrite the lines above
// or reverse the direction of reading. Invisible characters are made visible; none is lost.
package terminal

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
)

// unquoted has as they are the characters that only a quoted text must escape.
var unquoted = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

// Line returns a text on one line: runs of white space become one space, and characters that
// cannot be printed are escaped as in Go source (\x1b, \u202e).
func Line(text string) string {
	quoted := strconv.QuoteToGraphic(strings.Join(strings.Fields(text), " "))
	return unquoted.Replace(quoted[1 : len(quoted)-1])
}

// JSON escapes in valid JSON the characters that a terminal would act on. They can only be
// in strings there, so the value stays the same.
func JSON(valid []byte) []byte {
	var out strings.Builder
	for _, r := range string(valid) {
		if r == '\n' || r == '\t' || r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return []byte(out.String())
}
