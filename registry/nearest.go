package registry

import "strings"

// nearest returns the word that a misspelt one most likely stands for: all but one letter, or two that are swapped, are the same.
// Case and separators do not count (retry_max and retryMax are near retry.max).
func nearest(misspelt string, words []string) (string, bool) {
	for _, same := range []bool{true, false} {
		for _, word := range words {
			a, b := fold(misspelt), fold(word)
			if a == b || !same && oneMistake(a, b) {
				return word, true
			}
		}
	}
	return "", false
}

func fold(word string) string {
	return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(word))
}

func oneMistake(a, b string) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(a) <= 1 && len(b) <= 1 || len(a) == 2 && len(b) == 2 && a[0] == b[1] && a[1] == b[0]
}
