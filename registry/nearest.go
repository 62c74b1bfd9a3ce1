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

// distance is how many bytes must be inserted, deleted, replaced or swapped with
// their neighbour to turn a into b.
func distance(a, b string) int {
	edits := make([][]int, len(a)+1) // [i][j]: from a[:i] to b[:j]
	for i := range edits {
		edits[i] = make([]int, len(b)+1)
		edits[i][0] = i
	}
	for j := range edits[0] {
		edits[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := edits[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			edits[i][j] = min(replaced, edits[i-1][j]+1, edits[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				edits[i][j] = min(edits[i][j], edits[i-2][j-2]+1)
			}
		}
	}
	return edits[len(a)][len(b)]
}
