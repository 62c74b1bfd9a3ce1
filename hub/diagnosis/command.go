package diagnosis

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Commands returns command lines, given as their words, as text to be pasted into a POSIX shell. It returns nil if a word
// has a character that cannot be printed: the reader would not see what runs, and the terminal might act on it.
func Commands(lines ...[]string) []string {
	all := make([]string, len(lines))
	for i, words := range lines {
		quoted := make([]string, len(words))
		for j, word := range words {
			if strings.ContainsFunc(word, unprintable) {
				return nil
			}
			quoted[j] = quoteWord(word)
		}
		all[i] = strings.Join(quoted, " ")
	}
	return all
}

// Printable reports whether commands have only characters that a terminal shows as they are.
func Printable(commands ...string) bool {
	return !slices.ContainsFunc(commands, func(c string) bool { return strings.ContainsFunc(c, unprintable) })
}

func unprintable(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }

// plainWord is a word that has no meaning of its own for a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+,./:-][A-Za-z0-9_@%+=,./:-]*$`)

// quoteWord returns a word as a shell reads it.
func quoteWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
