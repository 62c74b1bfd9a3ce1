package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
)

const configureFile = "../../deploy/CONFIGURE.md"

// documentedFlags returns the flags in the table below a heading of deploy/CONFIGURE.md,
// with their defaults.
func documentedFlags(t *testing.T, heading string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(configureFile)
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", configureFile, heading)
	}
	below, _, _ = strings.Cut(below, "\n#")
	flags := map[string]string{}
	for line := range strings.Lines(below) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `--") {
			continue
		}
		names, defaults := strings.Split(cells[1], ","), strings.Split(cells[2], ",")
		if len(defaults) == 1 {
			defaults = slices.Repeat(defaults, len(names))
		}
		for i, name := range names {
			flags[strings.Trim(name, " `-")] = strings.Trim(defaults[i], " `")
		}
	}
	return flags
}

// defaultOf is what a flag says of its default: csi-attacher's say it in words.
func defaultOf(f *pflag.Flag) string {
	if told := regexp.MustCompile(`\(default ([0-9]\S*?)[;)]`).FindStringSubmatch(f.Usage); told != nil {
		return told[1]
	}
	if slices.Contains([]string{"0", "0s", "[]", "", "false"}, f.DefValue) {
		return ""
	}
	return f.DefValue
}

func TestEveryFlagIsDocumentedWithItsDefault(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	for _, test := range []struct {
		command  *cobra.Command
		headings []string
		others   []string // flags in these tables that are another command's
	}{
		{newHubCommand(), []string{"## Flags", "### Flags of the log"}, nil},
		{newValidateCommand(), []string{"### Flags of validate"}, nil},
		{newAdoptCommand(), []string{"### Flags of adopt"}, nil},
		{newStatusCommand(), []string{"### Flags of status and explain", "### Flags of status"}, []string{"namespace"}},
		{newVolumesCommand(), []string{"### Flags of status and explain", "### Flags of volumes"}, nil},
		{newExplainCommand(), []string{"### Flags of status and explain", "### Flags of explain"}, nil},
	} {
		t.Run(test.command.Name(), func(t *testing.T) {
			test.command.InitDefaultHelpFlag()
			documented := map[string]string{}
			for _, heading := range test.headings {
				for name, byDefault := range documentedFlags(t, heading) {
					documented[name] = byDefault
				}
			}
			test.command.Flags().VisitAll(func(f *pflag.Flag) {
				got, there := documented[f.Name]
				delete(documented, f.Name)
				if want := defaultOf(f); !there {
					t.Errorf("--%s is not in %s", f.Name, configureFile)
				} else if got != want && got != f.DefValue {
					t.Errorf("the default of --%s is %q, %s says %q", f.Name, want, configureFile, got)
				}
			})
			for name := range documented {
				if !slices.Contains(test.others, name) {
					t.Errorf("%s has --%s, which is none", configureFile, name)
				}
			}
		})
	}
}

// The commands without a table have no flag that would be worth one.
func TestOtherCommandsHaveNoFlags(t *testing.T) {
	for _, command := range []*cobra.Command{newSchemaCommand(), newVersionCommand()} {
		command.Flags().VisitAll(func(f *pflag.Flag) { t.Errorf("%s has --%s, which is in no table", command.Name(), f.Name) })
	}
}

// documentsAndManifests returns README.md and the Markdown and YAML files below deploy, by
// path.
func documentsAndManifests(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	read := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = string(text)
	}
	read("../../README.md")
	err := filepath.WalkDir("../../deploy", func(path string, _ fs.DirEntry, err error) error {
		if ext := filepath.Ext(path); ext == ".md" || ext == ".yaml" {
			read(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// What documents and alerts tell people to type is understood, with their placeholders as
// names.
func TestEveryDocumentedExplainIsUnderstood(t *testing.T) {
	typed := regexp.MustCompile("csi-attach-hub explain ([A-Za-z][^\\s`]*)")
	kinds := map[explain.Kind]int{}
	for path, text := range documentsAndManifests(t) {
		for _, m := range typed.FindAllStringSubmatch(text, -1) {
			question, err := explain.ParseQuestion(m[1], "default")
			if err != nil {
				t.Errorf("%s: %s: %v", path, m[0], err)
			}
			kinds[question.Kind]++
		}
	}
	if kinds[explain.Pod] < 3 || kinds[""] < 2 || kinds[explain.PersistentVolume] < 1 {
		t.Errorf("found only %v", kinds)
	}
}

// Each command line in the code of a document has a subcommand and flags that exist.
func TestEveryDocumentedCommandLineIsUnderstood(t *testing.T) {
	root := newHubCommand()
	root.AddCommand(subcommands()...)
	root.InitDefaultCompletionCmd()
	// Between backquotes, or on a line of its own in a block of code.
	inText := regexp.MustCompile("`(?:bin/)?csi-attach-hub ([^`\n]+)`")
	inBlock := regexp.MustCompile(`(?m)^(?: {4,}|\$ )(?:bin/)?csi-attach-hub ([^\n|#>]+)`)
	found := 0
	for path, text := range documentsAndManifests(t) {
		text = strings.ReplaceAll(text, "\\\n", " ")
		for _, m := range append(inText.FindAllStringSubmatch(text, -1), inBlock.FindAllStringSubmatch(text, -1)...) {
			found++
			words := strings.Fields(m[1])
			command, _, err := root.Find(words)
			if err != nil || command == root && !strings.HasPrefix(words[0], "-") && !strings.HasPrefix(words[0], "[") {
				t.Errorf("%s: %s: there is no such command: %v", path, m[0], err)
				continue
			}
			command.InitDefaultHelpFlag()
			for _, word := range words {
				name, isLong := strings.CutPrefix(word, "--")
				name, _, _ = strings.Cut(name, "=")
				isShort := !isLong && len(word) == 2 && word[0] == '-'
				if isLong && command.Flags().Lookup(name) == nil || isShort && command.Flags().ShorthandLookup(word[1:]) == nil {
					t.Errorf("%s: %s: %s has no flag %s", path, m[0], command.Name(), word)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("found only %d command lines", found)
	}
}
