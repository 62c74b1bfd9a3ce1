package mutants

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// longest bounds one run of killers. A test that waits for what never comes gives up before.
const longest = "4m"

// TestEachMutantDies runs each mutant against its killers, after these have passed without a mutant. MUTANTS=all runs all
// mutants, another text those that have it in their name.
//
//	MUTANTS=fence go test -count 1 -v -run TestEachMutantDies ./internal/test/mutants
func TestEachMutantDies(t *testing.T) {
	wanted := os.Getenv("MUTANTS")
	if wanted == "" {
		t.Skip("MUTANTS=all runs the mutants, as make mutants does")
	}
	all, chosen := rows, map[int]mutant{} // by number
	tests := map[string][]string{}        // by folder
	for i, m := range all {
		if wanted != "all" && !strings.Contains(m.name, wanted) {
			continue
		}
		chosen[i+1] = m
		for _, text := range m.killed {
			k := killerOf(text)
			tests[k.folder] = append(tests[k.folder], k.test)
		}
	}
	if len(chosen) == 0 {
		t.Fatalf("no mutant has %q in its name", wanted)
	}
	programs := build(t, all, tests)
	for folder, names := range tests {
		slices.Sort(names)
		names = slices.Compact(names)
		output, err := run(t.Context(), folder, programs[folder], 0, names)
		for _, name := range names {
			if !strings.Contains(output, "--- PASS: "+name+" ") {
				t.Errorf("%s.%s does not pass without a mutant (%v):\n%s", folder, name, err, end(output))
			}
		}
	}
	if t.Failed() {
		return
	}
	for number, m := range chosen {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for _, text := range m.killed { // each by itself: one may end the process of the others
				k := killerOf(text)
				output, err := run(t.Context(), k.folder, programs[k.folder], number, []string{k.test})
				if !strings.Contains(output, "--- FAIL: "+k.test+" ") || strings.Contains(output, "panic: test timed out") {
					t.Errorf("%s does not fail with the mutant in %s (%v):\n%s", text, m.file, err, end(output))
				}
			}
		})
	}
}

// end returns the last part of an output.
func end(output string) string { return output[max(0, len(output)-2000):] }

// build returns the programs of the tests of some folders, by folder. They have all mutants.
func build(t *testing.T, all []mutant, tests map[string][]string) map[string]string {
	t.Helper()
	rewritten, errs := rewrite(all)
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	scratch, replaced := t.TempDir(), map[string]string{}
	for file, text := range rewritten {
		at := filepath.Join(scratch, fmt.Sprintf("%d.go", len(replaced)))
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replaced[filepath.Join(top, file)] = at
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{}
	for folder := range tests {
		programs[folder] = filepath.Join(scratch, strings.ReplaceAll(folder, "/", "-")+".test")
		command := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", file, "-o", programs[folder], "./"+folder)
		command.Dir = top
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("build the tests of %s: %v: %s", folder, err, output)
		}
	}
	return programs
}

// run runs some tests of a folder with a mutant, 0 for none, and returns their output. It blocks until they have ended.
func run(ctx context.Context, folder, program string, number int, tests []string) (string, error) {
	command := exec.CommandContext(ctx, program, "-test.v", "-test.timeout", longest, "-test.run", "^("+strings.Join(tests, "|")+")$")
	command.Dir = filepath.Join(root, folder)
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d", variable, number))
	output, err := command.CombinedOutput()
	return string(output), err
}
