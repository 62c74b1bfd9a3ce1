package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The names of the markers in a Markdown file, around the tables and around the pictures.
const (
	tablesMarker   = "bench"
	picturesMarker = "bench pictures"
)

// WriteMarkdown writes the report as tables between the markers of a Markdown file, and as pictures into the folder
// "pictures" beside it. It makes a missing file. A file without the markers for tables, or with the table of a case that the
// report does not have, is an error, and stays as it is. A file without the markers for pictures gets none.
func (r Report) WriteMarkdown(path string) error {
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = []byte(marked(picturesMarker, "")+"\n"+marked(tablesMarker, "")), nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if lost := r.lacks(string(old)); len(lost) > 0 {
		return fmt.Errorf("write report: %s has tables of %s, which the report does not have: measure these cases too", path, strings.Join(lost, ", "))
	}
	text, ok := replaceMarked(string(old), tablesMarker, r.Markdown())
	if !ok {
		begin, end, _ := strings.Cut(strings.TrimSpace(marked(tablesMarker, "")), "\n")
		return fmt.Errorf("write report: %s has no lines %q and %q to put it between", path, begin, end)
	}
	pictures := r.pictures()
	if text, ok = replaceMarked(text, picturesMarker, pictureMarkdown(pictures)); ok {
		if err := writePictures(filepath.Join(filepath.Dir(path), picturesFolder), pictures); err != nil {
			return err
		}
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// lacks returns the cases with a table in a Markdown file that the report does not have.
func (r Report) lacks(markdown string) []string {
	var lost []string
	for _, name := range CaseNames() {
		has := slices.ContainsFunc(r.Cases, func(c Result) bool { return c.Name == name })
		if !has && strings.Contains(markdown, "\n**"+name+"**: ") {
			lost = append(lost, name)
		}
	}
	return lost
}

// marked returns a text between markers.
func marked(marker, text string) string {
	return fmt.Sprintf("<!-- %s -->\n%s<!-- /%s -->\n", marker, text, marker)
}

// replaceMarked replaces the text between markers; false: there are none, and the text is the old one.
func replaceMarked(old, marker, text string) (string, bool) {
	begin, end, _ := strings.Cut(marked(marker, "\x00"), "\x00")
	before, rest, begins := strings.Cut(old, begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return old, false
	}
	return before + marked(marker, text) + after, true
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
