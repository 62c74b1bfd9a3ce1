package mutants

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of the mutants into doc.go")

// TestTableOfTheMutantsIsTheirs compares the table in doc.go with the rows. go test ./internal/mutants -update writes it.
func TestTableOfTheMutantsIsTheirs(t *testing.T) {
	const file, begin, end = "doc.go", "// # Who kills which\n", "package mutants\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(text), begin)
	if !found {
		t.Fatalf("%s has no line %q", file, begin)
	}
	want := []byte(head + begin + table() + end)
	if bytes.Equal(text, want) {
		return
	}
	if !*update {
		t.Fatalf("the table in %s is not that of the rows: go test ./internal/mutants -update writes it", file)
	}
	if err := os.WriteFile(file, want, 0o644); err != nil {
		t.Fatal(err)
	}
}

// table returns the table as a comment of Go, by file.
func table() string {
	var b strings.Builder
	all := mutants()
	for _, file := range filesOf(all) {
		b.WriteString("//\n// " + file + ":\n//\n")
		for _, m := range all {
			if m.file == file {
				b.WriteString("//   - " + m.name + ". " + m.harm + "\n//     Killed by " + strings.Join(m.killed, ", ") + ".\n")
			}
		}
	}
	return b.String()
}
