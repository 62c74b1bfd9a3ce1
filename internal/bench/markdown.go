package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// The markers in a Markdown file around the report.
const (
	beginMarker = "<!-- bench -->\n"
	endMarker   = "<!-- /bench -->"
)

// WriteMarkdown writes the report as Markdown between the markers of a file. It makes a missing file.
// A file without the markers is an error, and stays as it is.
func (r Report) WriteMarkdown(path string) error {
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = []byte(beginMarker+endMarker+"\n"), nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	text, ok := replaceMarked(string(old), r.Markdown())
	if !ok {
		return fmt.Errorf("write report: %s has no lines %q and %q to put it between", path, strings.TrimSpace(beginMarker), endMarker)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// replaceMarked replaces the text between the markers; false: there are none.
func replaceMarked(old, text string) (string, bool) {
	before, rest, begins := strings.Cut(old, beginMarker)
	_, after, ends := strings.Cut(rest, endMarker)
	if !begins || !ends {
		return "", false
	}
	return before + beginMarker + text + endMarker + after, true
}

// Markdown returns the report as a section: a table for each case, without details.
func (r Report) Markdown() string {
	var b strings.Builder
	for _, c := range r.Cases {
		fmt.Fprintf(&b, "\n**%s**: %s.\n", c.Name, c.About)
		fmt.Fprintf(&b, "%s, `%s`, %s: %s.\n\n", c.Date.Format(time.DateOnly), c.Command, c.conditions(), c.Machine)
		for i, cells := range c.cells(func(d description) bool { return !d.detail }) {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
			if i == 0 {
				fmt.Fprintf(&b, "|---|%s\n", strings.Repeat("--:|", len(cells)-1))
			}
		}
		if len(c.Verdicts) > 0 {
			b.WriteString("\n")
		}
		for _, v := range c.Verdicts {
			word := "met"
			if !v.Met {
				word = "**missed**"
			}
			fmt.Fprintf(&b, "- %s: %s, %s\n", v.Target, v.Reached, word)
		}
	}
	b.WriteString("\n")
	return b.String()
}
