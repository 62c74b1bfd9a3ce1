package registry

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What Parse does not take, it explains. It never panics.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	valid, err := filepath.Glob("testdata/valid/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(append(files, valid...), exampleFile) {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("0: [:!00 \xef"))
	f.Add([]byte("\xff\xfea\x00:\x00"))
	f.Add([]byte("a\n---\np"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := Parse("f.yaml", data); err != nil {
			checkErrors(t, data, err)
		}
	})
}

func checkErrors(t *testing.T, data []byte, err error) {
	t.Helper()
	list, ok := errors.AsType[Errors](err)
	if !ok || len(list) == 0 {
		t.Fatalf("got %T %v, want Errors", err, err)
	}
	lines := 1
	for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} { // all that YAML knows
		lines += bytes.Count(data, []byte(end))
	}
	last := 0
	for _, e := range list {
		if e.Line < last || e.Line > lines {
			t.Errorf("line %d is out of order or beyond the end: %v", e.Line, e)
		}
		last = e.Line
		if e.Message == "" || strings.ContainsAny(e.Error(), "\n\r\x00") {
			t.Errorf("not one line: %q", e)
		}
	}
}
