package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDocumentListsTheModulesThatAreLinked(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Path: "example.com/Program", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "github.com/Upper/lib", Version: "v2.0.0+incompatible", Sum: "h1:AAEC"},
			{Path: "example.com/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/new", Version: "v1.1.0"}},
		},
		Settings: []debug.BuildSetting{{Key: "-trimpath", Value: "true"}, {Key: "GOARCH", Value: "arm64"}},
	}
	d, err := newDocument(info, []byte("program"), "v3", time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]component{
		{Type: "library", BOMRef: "pkg:golang/std@1.26.8", Name: "std", Version: "1.26.8", PURL: "pkg:golang/std@1.26.8"},
		{
			Type: "library", BOMRef: "pkg:golang/github.com/upper/lib@v2.0.0%2Bincompatible", Name: "github.com/Upper/lib", Version: "v2.0.0+incompatible",
			Hashes: []hash{{"SHA-256", "000102"}}, PURL: "pkg:golang/github.com/upper/lib@v2.0.0%2Bincompatible",
		},
		{Type: "library", BOMRef: "pkg:golang/example.com/new@v1.1.0", Name: "example.com/new", Version: "v1.1.0", PURL: "pkg:golang/example.com/new@v1.1.0"},
	}, d.Components); diff != "" {
		t.Errorf("components (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(metadata{"1970-01-01T00:00:00Z", component{
		Type: "application", BOMRef: "pkg:golang/example.com/program@v3", Name: "example.com/Program", Version: "v3", PURL: "pkg:golang/example.com/program@v3",
		Hashes:     []hash{{"SHA-256", "1310ca2c8932dbd118668bd97442558a3e1f546b5e15c69699dfbd6024f548d8"}},
		Properties: []property{{"cdx:gomod:build:env:GOARCH", "arm64"}},
	}}, d.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

func TestEqualProgramsHaveEqualSerialNumbers(t *testing.T) {
	serial := func(program string) string {
		d, err := newDocument(&debug.BuildInfo{}, []byte(program), "v1", time.Unix(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		return d.SerialNumber
	}
	first, again, other := serial("a"), serial("a"), serial("b")
	if first != again || first == other {
		t.Errorf("the serial numbers are %s and %s for a, %s for b", first, again, other)
	}
}

func TestProgramDescribesItself(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run([]string{"--version", "v1", "--epoch", "86400", self}, &out); err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(out.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	if d.Metadata.Timestamp != "1970-01-02T00:00:00Z" || d.Metadata.Component.Version != "v1" || len(d.Components) == 0 {
		t.Errorf("the document is %+v", d)
	}
}

func TestFileThatIsNoGoProgramIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{path}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error: %v", err)
	}
}
