package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
)

// foreignFlags are flags of other programs that the documents name.
var foreignFlags = []string{"allow-san", "client-ca", // csi-attach-proxy
	"enable-fencing", "etcd-servers-overrides", "server-side", "attach-detach-reconcile-sync-period", "disable-attach-detach-reconcile-sync"}

func TestEveryFlagInADocumentExists(t *testing.T) {
	flags, found := map[string]bool{}, 0
	for _, name := range foreignFlags {
		flags[name] = true
	}
	for _, command := range append(subcommands(), newHubCommand()) {
		command.InitDefaultHelpFlag()
		command.Flags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
	}
	inText := regexp.MustCompile("`--([a-z][a-z-]*)")
	for path, text := range documentsAndManifests(t) {
		for _, m := range inText.FindAllStringSubmatch(text, -1) {
			if found++; !flags[m[1]] {
				t.Errorf("%s: there is no flag --%s", path, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("found only %d flags", found)
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
