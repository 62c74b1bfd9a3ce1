package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pageFlags are flags for the manifests that do not say everything, by the name of the manifest.
var pageFlags = map[string][]string{
	"ceph-rbd.yaml": {"--driver=rbd.csi.ceph.com"},
	"longhorn.yaml": {"--mode=drop-in"},
}

// The page shows for each manifest what adopt says of it: `go test -run DriversPage -update` writes that.
func TestDriversPageShowsWhatAdoptSays(t *testing.T) {
	path, err := filepath.Abs("../../deploy/DRIVERS.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../../internal/adopt/testdata/manifests")
	found := 0
	section := regexp.MustCompile(`(?s)<!-- adopt (\S+) -->\n.*?<!-- /adopt -->`)
	want := section.ReplaceAllFunc(page, func(old []byte) []byte {
		found++
		name := string(section.FindSubmatch(old)[1])
		return fmt.Appendf(nil, "<!-- adopt %s -->\n```\n%s```\n<!-- /adopt -->", name, adoptedSummary(t, name))
	})
	if found < 8 {
		t.Errorf("found only %d sections", found)
	}
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(page, want) {
		t.Errorf("deploy/DRIVERS.md does not show what adopt says now: run the test with -update, and review the change")
	}
}

// adoptedSummary returns what adopt prints about a manifest, up to the steps.
func adoptedSummary(t *testing.T, name string) string {
	t.Helper()
	args := append([]string{"adopt", name, "--image=registry.example.com/csi-attach-hub:v1"}, pageFlags[name]...)
	var out, problems bytes.Buffer
	if code := run(args, &out, &problems); code != 0 {
		t.Errorf("adopt %s: exit code %d: %s", name, code, &problems)
	}
	text, _, _ := strings.Cut(out.String(), "\nSteps:\n")
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "Read from") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}
