package attach

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// rowOfPains is a row of PAINS.md that begins with a number.
var rowOfPains = regexp.MustCompile(`(?m)^\| (\d+) \| .*https://github\.com/.*$`)

func TestEveryPainIsAnsweredOrDeclinedAndEveryTestNamedExists(t *testing.T) {
	text, err := os.ReadFile("PAINS.md")
	must(t, err)
	answers := map[string]int{}
	for _, row := range rowOfPains.FindAllStringSubmatch(string(text), -1) {
		answers[row[1]]++
	}
	const pains = 69
	if len(answers) != pains {
		t.Errorf("%d pains, want %d", len(answers), pains)
	}
	for number, n := range answers {
		if n > 1 {
			t.Errorf("number %s has %d rows", number, n)
		}
	}
	exists := testsBelow(t, filepath.Join("..", ".."))
	for _, name := range regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1) {
		if !exists[name[1]] {
			t.Errorf("PAINS.md names %s, which does not exist", name[1])
		}
	}
}

// testsBelow returns the names of all tests below a folder.
func testsBelow(t *testing.T, root string) map[string]bool {
	t.Helper()
	declaration := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(t \*testing\.T\)`)
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declaration.FindAllSubmatch(text, -1) {
			names[string(found[1])] = true
		}
		return err
	})
	must(t, err)
	return names
}
