package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/internal/chart"
)

// picturesFolder has the pictures, beside the Markdown file.
const picturesFolder = "pictures"

// pictureMarkdown shows the pictures, each in the colours of the page.
func pictureMarkdown(pictures []picture) string {
	var b strings.Builder
	for _, p := range pictures {
		fmt.Fprintf(&b, "\n<picture>\n  <source media=\"(prefers-color-scheme: dark)\" srcset=\"%s/%s\">\n  <img alt=\"%s; the tables have the figures\" src=\"%s/%s\">\n</picture>\n",
			picturesFolder, p.file(chart.Dark), html.EscapeString(p.Title), picturesFolder, p.file(chart.Light))
	}
	b.WriteString("\n")
	return b.String()
}

// file returns the name of the file of a picture.
func (p picture) file(theme chart.Theme) string {
	return fmt.Sprintf("bench-%s-%s.svg", p.name, theme.Name)
}

// writePictures writes the pictures into a folder, which it makes if it does not exist, and removes pictures of earlier reports.
func writePictures(folder string, pictures []picture) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("make folder of pictures: %w", err)
	}
	earlier, err := filepath.Glob(filepath.Join(folder, "bench-*-*.svg"))
	if err != nil {
		return fmt.Errorf("look for pictures: %w", err)
	}
	for _, path := range earlier {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove picture: %w", err)
		}
	}
	for _, p := range pictures {
		for _, theme := range []chart.Theme{chart.Light, chart.Dark} {
			if err := os.WriteFile(filepath.Join(folder, p.file(theme)), p.SVG(theme), 0o644); err != nil {
				return fmt.Errorf("write picture: %w", err)
			}
		}
	}
	return nil
}
