package status

import "strings"

// longestLabel bounds a label value, in bytes. Names in Kubernetes are shorter.
const longestLabel = 253

// label returns a foreign text as a label value. A value that is not valid UTF-8 would fail the whole
// scrape.
func label(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), longestLabel)], "?")
}
