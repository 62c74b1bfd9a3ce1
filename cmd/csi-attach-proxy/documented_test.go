package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestEveryFlagIsDocumentedWithItsDefault(t *testing.T) {
	text, err := os.ReadFile("../../deploy/CONFIGURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(text), "\n### Flags of csi-attach-proxy\n")
	if !found {
		t.Fatal("the table is missing")
	}
	below, _, _ = strings.Cut(below, "\n#")
	lines := strings.Split(below, "\n")
	documented := func(words ...string) bool {
		for _, line := range lines {
			all := true
			for _, word := range words {
				all = all && strings.Contains(line, "`"+word+"`")
			}
			if all {
				return true
			}
		}
		return false
	}
	c := newCommand()
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	flags := 0
	c.Flags().VisitAll(func(f *pflag.Flag) {
		flags++
		words := []string{"--" + f.Name}
		if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" {
			words = append(words, f.DefValue)
		}
		if !documented(words...) {
			t.Errorf("CONFIGURE.md has no line with %q", words)
		}
	})
	if got := strings.Count(below, "`--") - strings.Count(below, "new `--client-ca`"); got != flags {
		t.Errorf("CONFIGURE.md names %d flags, there are %d", got, flags)
	}
}
