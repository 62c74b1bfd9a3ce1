package diagnosis

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Commands returns command lines, given as their words, as text to be pasted into a POSIX shell. It returns nil if a word
// has a character that cannot be printed: the reader would not see what runs, and the terminal might act on it.
func Commands(lines ...[]string) (all []string) {
	for _, words := range lines {
		words = slices.Clone(words)
		for i, word := range words {
			if !plainWord.MatchString(word) {
				words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
			}
		}
		all = append(all, strings.Join(words, " "))
	}
	if !Printable(all...) {
		return nil
	}
	return all
}

// Printable reports whether commands have only characters that a terminal shows as they are.
func Printable(commands ...string) bool {
	return !strings.ContainsFunc(strings.Join(commands, ""), func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) })
}

// plainWord is a word that has no meaning of its own for a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+,./:-][A-Za-z0-9_@%+=,./:-]*$`)
