package registry

import "strings"

// nearest returns the word that a misspelt one most likely stands for. Case and
// separators do not count (retry_max and retryMax are near retry.max).
func nearest(misspelt string, words []string) (string, bool) {
	const longest = 40 // nothing longer is near a key
	if len(misspelt) > longest {
		return "", false
	}
	best, fewest := "", 0
	for _, word := range words {
		edits := distance(fold(misspelt), fold(word))
		if edits <= len(word)/3 && (best == "" || edits < fewest) {
			best, fewest = word, edits
		}
	}
	return best, best != ""
}

func fold(word string) string {
	return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(word))
}

// distance is how many bytes must be inserted, deleted or replaced to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // from a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
