package status

import "strings"

// longestLabel bounds a label value, in bytes. Names in Kubernetes are shorter.
const longestLabel = 253

// label makes a label value of a foreign text. A value that is not valid UTF-8 would fail the whole
// scrape.
func label(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), longestLabel)], "?")
}
