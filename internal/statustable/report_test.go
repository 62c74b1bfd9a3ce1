package statustable

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares a text with a file, and checks that nothing in it changes a terminal but the program's colours.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, r := range uncolored(got) {
		if r != '\n' && !unicode.IsGraphic(r) {
			t.Errorf("%q is in the text", r)
		}
	}
}

var painted = regexp.MustCompile("\x1b\\[[0-9;]+m")

func uncolored(text string) string { return painted.ReplaceAllString(text, "") }

func TestStatusShowsEveryKindOfTrouble(t *testing.T) {
	for name, o := range map[string]TextOptions{
		"pipe":       {},
		"color":      {Style: Style{Color: true}},
		"wide":       {Style: Style{Width: 80}, Wide: true},
		"columns-80": {Style: Style{Width: 80}}, "columns-120": {Style: Style{Width: 120}}, "columns-200": {Style: Style{Width: 200, Color: true}},
	} {
		t.Run(name, func(t *testing.T) {
			text := report().Text(o)
			golden(t, "status-"+name, text)
			_, tables, _ := strings.Cut(uncolored(text), "\n") // without the summary
			tables, _, _ = strings.Cut(tables, "\nProblems:")
			for line := range strings.Lines(tables) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); o.Width > 0 && !o.Wide && n > o.Width {
					t.Errorf("a line has %d characters: %s", n, line)
				}
			}
		})
	}
}

func TestColorIsTheOnlyDifferenceOnATerminal(t *testing.T) {
	with, without := report().Text(TextOptions{Style: Style{Color: true}}), report().Text(TextOptions{})
	if with == without || uncolored(with) != without {
		t.Errorf("got\n%s\nwant, without colours,\n%s", with, without)
	}
}
