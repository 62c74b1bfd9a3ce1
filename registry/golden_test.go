package registry_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

var update = flag.Bool("update", false, "write what Parse says of testdata/*.yaml into testdata/*.errors")

// Each testdata/x.yaml has mistakes; testdata/x.errors is what users are told of them.
func TestEveryMistakeOfAFileIsReported(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			check(t, err)
			_, err = registry.Parse("drivers.yaml", data)
			if _, ok := errors.AsType[registry.Errors](err); !ok {
				t.Fatalf("got %v (%T), want Errors", err, err)
			}
			got := err.Error() + "\n"
			golden := strings.TrimSuffix(file, ".yaml") + ".errors"
			if *update {
				check(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			check(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the errors differ (-want +got):\n%s", diff)
			}
		})
	}
}
