package main

import (
	"os"
	"regexp"
	"testing"
)

func TestEveryFlagInTheExampleExists(t *testing.T) {
	text, err := os.ReadFile("../../drivers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	args := regexp.MustCompile(`args: \[([^\]]+)\]`).Find(text)
	flags := regexp.MustCompile(`--([a-z-]+)=`).FindAllSubmatch(args, -1)
	if len(flags) < 5 {
		t.Errorf("found only %d flags", len(flags))
	}
	for _, m := range flags {
		if newCommand().Flags().Lookup(string(m[1])) == nil {
			t.Errorf("drivers.yaml: csi-attach-proxy has no flag --%s", m[1])
		}
	}
}
