package hub

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestMapNamesWhatExists finds files and functions in doc.go that the code does not have any more.
func TestMapNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`([\w/-]+\.go)(?::(\w+))?`).FindAllStringSubmatch(string(text), -1)
	if len(all) < 30 {
		t.Errorf("the map names %d files", len(all))
	}
	for _, named := range all {
		code, err := os.ReadFile(filepath.Join("..", named[1]))
		if err != nil {
			t.Error(err)
		} else if named[2] != "" && !regexp.MustCompile(`(?m)^func (\(.*\) )?`+named[2]+`\b`).Match(code) {
			t.Errorf("%s has no function %s", named[1], named[2])
		}
	}
}
