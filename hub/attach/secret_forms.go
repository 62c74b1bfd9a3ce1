package attach

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

const (
	// shortestSecret is the length of the shortest values and lines that are removed from errors, in bytes.
	// Texts may contain shorter ones by chance.
	shortestSecret = 6
	// shortestField is the same for fields of a value: these are often usual words.
	shortestField = 8
	// The encoded forms of a value take at most encodedLeast bytes, and encodedTimes its size up to recentBytes.
	// That is enough for each line of up to 200 bytes of most files. A Secret of 1 MiB may have 100,000 lines, with about 20
	// forms for each.
	encodedLeast = 16 << 10
	encodedTimes = 32
	// formOverhead is the memory that a formSet takes for a form, besides its text.
	formOverhead = 48
)

// hiddenForms returns the forms in which a text may repeat a value, in no order; some repeatedly. Long parts are looked
// for only as they are if the encoded forms would take too much memory: their lines are parts too.
func hiddenForms(value string) []string {
	parts := partsOf(value)
	slices.SortFunc(parts, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	var all []string
	left := encodedLeast + encodedTimes*min(len(value), recentBytes)
	for _, part := range slices.Compact(parts) {
		if len(part) > left/8 { // its forms are longer together
			left = 0
		}
		if left > 0 {
			forms := formsOf(part)
			for _, form := range forms {
				left -= len(form) + formOverhead
			}
			if left >= 0 {
				all = append(all, forms...)
				continue
			}
		}
		all = append(all, csiclient.Sanitize(part))
	}
	return all
}

// partsOf returns the parts of a value that a driver may repeat alone. If the value is the base64 of a text,
// drivers decode it: then these are also the parts of that text.
func partsOf(value string) []string {
	parts := textParts(value)
	if text, ok := decoded(value); ok {
		parts = append(parts, textParts(text)...)
	}
	return parts
}

// textParts returns a text, its lines, the values of lines like key=value and key: value and, if the text is JSON,
// the parts of its strings.
func textParts(text string) []string {
	var parts []string
	add := func(part string, shortest int) {
		// Files end with a newline, which drivers trim.
		if part = strings.TrimSpace(part); len(part) >= shortest {
			parts = append(parts, part)
		}
	}
	if len(text) >= shortestSecret && text != strings.TrimSpace(text) {
		parts = append(parts, text)
	}
	add(text, shortestSecret)
	for line := range strings.Lines(text) {
		if line != text {
			add(line, shortestSecret)
		}
		if i := strings.IndexAny(line, "=:"); i >= 0 {
			add(strings.Trim(line[i+1:], " \t\r\n\"',"), shortestField)
		}
	}
	var value any
	if json.Unmarshal([]byte(text), &value) == nil {
		for _, leaf := range jsonStrings(value) {
			if len(leaf) >= shortestField {
				parts = append(parts, textParts(leaf)...)
			}
		}
	}
	return parts
}

// jsonStrings returns the strings in a decoded JSON value, without the keys of objects.
func jsonStrings(value any) (all []string) {
	switch value := value.(type) {
	case string:
		return []string{value}
	case []any:
		for _, v := range value {
			all = append(all, jsonStrings(v)...)
		}
	case map[string]any:
		for _, v := range value {
			all = append(all, jsonStrings(v)...)
		}
	}
	return all
}

// decoded returns the text that a value is the base64 of. Other values are base64 too by their characters, but
// not of a text.
func decoded(value string) (string, bool) {
	value = strings.TrimRight(strings.Join(strings.Fields(value), ""), "=")
	for _, encoding := range base64Encodings {
		text, err := encoding.DecodeString(value)
		if err == nil && utf8.Valid(text) && !bytes.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) }) {
			return string(text), true
		}
	}
	return "", false
}

var base64Encodings = []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding}

// formsOf returns the forms of a part in a sanitized text, each once: as it is, escaped as in Go, JSON, HTML and URLs,
// in hex and in base64.
func formsOf(part string) []string {
	query, path, escaped := url.QueryEscape(part), url.PathEscape(part), html.EscapeString(part)
	spaces := strings.ReplaceAll(query, "+", "%20")
	forms := []string{
		part, unquoted(strconv.Quote(part)), unquoted(strconv.QuoteToASCII(part)), jsonEscaped(part, true), jsonEscaped(part, false),
		escaped, namedQuotes.Replace(escaped),
		query, path, spaces, lowerEscapes(query), lowerEscapes(path), lowerEscapes(spaces), strings.TrimPrefix(url.UserPassword("", part).String(), ":"),
		hex.EncodeToString([]byte(part)), strings.ToUpper(hex.EncodeToString([]byte(part))),
	}
	if csiclient.Sanitize(part) != part {
		for i, form := range forms {
			forms[i] = csiclient.Sanitize(form)
		}
	}
	// In a longer base64 text a part may begin at each of the three bytes of a group of four characters. The
	// characters at its edges that also depend on its neighbours are cut off.
	for _, encoding := range base64Encodings {
		for shift, foreign := range []int{0, 2, 3} {
			text := encoding.EncodeToString(append(make([]byte, shift, shift+len(part)), part...))[foreign:]
			forms = append(forms, text)
			if (shift+len(part))%3 != 0 {
				forms = append(forms, text[:len(text)-1])
			}
		}
	}
	slices.Sort(forms)
	return slices.Compact(slices.DeleteFunc(forms, func(f string) bool { return len(f) < shortestSecret }))
}

// namedQuotes has the HTML escapes that others than Go write.
var namedQuotes = strings.NewReplacer("&#34;", "&quot;", "&#39;", "&#x27;")

func unquoted(quoted string) string { return quoted[1 : len(quoted)-1] }

// jsonEscaped returns the inside of a JSON string.
func jsonEscaped(text string, escapeHTML bool) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(escapeHTML)
	_ = encoder.Encode(text) // a string can be encoded
	return unquoted(strings.TrimSuffix(out.String(), "\n"))
}

// lowerEscapes writes %2F as %2f.
func lowerEscapes(text string) string {
	b := []byte(text)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}
