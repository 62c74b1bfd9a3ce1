package mutants

import (
	"strings"
	"testing"
)

// mutant is one deliberate fault.
type mutant struct {
	name   string // what is wrong
	harm   string // what it would do to a user
	file   string // path from the root of the module
	old    string // the text that is replaced: once in the file, in the body of one function
	new    string
	killed []string // tests that fail with it: FOLDER.TestName
}

// killer is a test that fails with a mutant.
type killer struct{ folder, test string }

func killerOf(text string) killer {
	i := strings.LastIndex(text, ".")
	return killer{text[:max(i, 0)], text[i+1:]}
}

func TestEachMutantHasANameAHarmAndAKiller(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range rows {
		if m.name == "" || m.harm == "" || m.file == "" || len(m.killed) == 0 {
			t.Errorf("mutant %q of %s: name, harm, file and killed must be set", m.name, m.file)
		}
		if seen[m.name] {
			t.Errorf("two mutants have the name %q", m.name)
		}
		seen[m.name] = true
		if m.old == m.new {
			t.Errorf("mutant %q changes nothing", m.name)
		}
	}
	if least := 25; len(seen) < least {
		t.Errorf("there are %d mutants, want at least %d", len(seen), least)
	}
}
