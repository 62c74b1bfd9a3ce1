package race

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestMakeTestRunsWithoutTheRaceDetectorWhatSkipsItselfWithIt(t *testing.T) {
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)\nWITHOUT_RACE := (\S+)\n.*-run '\$\(WITHOUT_RACE\)' (.*?) &`).FindStringSubmatch(string(makefile))
	run, folders := regexp.MustCompile(found[1]), strings.Fields(found[2])
	skips := regexp.MustCompile(`\brace\.(Skip|OneRow)\(|\bexploreFor\(`) // a helper that skips stands here by its name
	if err := fs.WalkDir(os.DirFS("../../.."), ".", func(path string, _ fs.DirEntry, err error) error {
		if folder := "./" + filepath.Dir(path); strings.HasSuffix(path, "_test.go") && folder != "./hub/tests" { // all of which runs
			text, _ := os.ReadFile("../../../" + path)
			for function := range strings.SplitSeq(string(text), "\nfunc ") {
				name, body, _ := strings.Cut(function, "(")
				if skips.MatchString(body) && name != "exploreFor" && !(run.MatchString(name) && slices.Contains(folders, folder)) {
					t.Errorf("%s in %s skips itself or a part with the race detector, and WITHOUT_RACE in the Makefile does not run it", name, folder)
				}
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
