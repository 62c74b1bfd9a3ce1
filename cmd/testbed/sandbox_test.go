package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func both(a, b func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return errors.Join(a(ctx), b(ctx)) }
}

func TestSandbox(t *testing.T) {
	u := startSandbox(t)
	for _, tt := range []struct {
		name string
		run  func(u *user)
	}{
		{"answers mistakes with what is valid", checkMistakes},
		{"writes an env file that names everything", checkEnv},
		{"has recipes that do what they say, and a way back", checkRecipes},
	} {
		t.Run(tt.name, func(t *testing.T) {
			of := *u
			of.t = t
			tt.run(&of)
		})
	}
}

func checkRecipes(u *user) {
	t := u.t
	hub, hub2, fast := u.variable("HUB"), u.variable("HUB2"), filepath.Join(filepath.Dir(u.env), "fast.sock")
	effects := map[string]struct{ done, undone func(context.Context) error }{
		"Make a driver hang":        {u.hangs("fast", "fast-hung"), u.pod("fast-hung", "none")},
		"Make a volume stuck":       {both(u.stuck("flaky"), u.pod("flaky-stuck", "Internal")), u.pod("flaky-stuck", "none")},
		"Fill the nodes":            {u.pod("fast-toomany", "ResourceExhausted"), u.pod("fast-toomany", "none")},
		"Kill a driver":             {both(u.listens("unix", fast, false), u.pod("fast-waiting", "waiting")), both(u.listens("unix", fast, true), u.pod("fast-waiting", "none"))},
		"Pause a driver":            {both(u.mode("fast", "paused"), u.pod("fast-paused", "waiting")), both(u.mode("fast", "active"), u.pod("fast-paused", "none"))},
		"Put a driver into observe": {both(u.mode("slow", "observe"), u.pod("slow-observed", "waiting")), both(u.mode("slow", "active"), u.pod("slow-observed", "none"))},
		"Kill a hub":                {both(u.listens("tcp", hub, false), u.listens("tcp", hub2, true)), both(u.listens("tcp", hub, true), u.listens("tcp", hub2, false))},
	}
	for _, r := range parseRecipes() {
		title, _, _ := strings.Cut(r.title, ":")
		title, _, _ = strings.Cut(title, ",")
		effect, ok := effects[strings.TrimSuffix(title, " of a driver")]
		if !ok {
			t.Errorf("the effect of recipe %q is not tested", title)
			continue
		}
		began := time.Now()
		u.follow(r.do)
		u.must(title, effect.done)
		u.look(r.look)
		u.follow(r.back)
		u.must(title+", the way back", effect.undone)
		t.Logf("%s: %v", title, time.Since(began).Round(time.Millisecond))
	}
}

// recipe is a recipe of recipes.txt, in commands.
type recipe struct {
	title          string
	do, look, back []string
}

// parseRecipes returns those recipes that have all three parts.
func parseRecipes() (all []recipe) {
	for text := range strings.SplitSeq(recipes, "\n\n") {
		title, text, _ := strings.Cut(text, "\n")
		do, text, looks := strings.Cut(text, " Look:\n")
		look, back, returns := strings.Cut(text, " Back:\n")
		if looks && returns {
			all = append(all, recipe{title, commands(do), commands(look), commands(back)})
		}
	}
	return all
}

func commands(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

func checkMistakes(u *user) {
	t := u.t
	for _, c := range []struct{ command, want string }{
		{"kill fats", `unknown name "fats": the drivers are fast, slow, flaky and hanging; `},
		{"start fast", "is being served already"},
		{"start hub", "hub runs already (pid "},
		{"stop hub-2", "hub-2 does not run; start it with: testbed sandbox start hub-2"},
		{"add extra", `name "extra" of a Pod does not begin with a driver`},
		{"add fast-1", `"fast-1" already exists`},
		{"remove fast-none", `"fast-none" not found`},
		{"knobs fast '{\"hangs\":1}'", `unknown field "hangs": write an object with name, capabilities`},
		{"knobs fats '{}'", `unknown name "fats": the drivers are fast, slow, flaky and hanging; `},
		{"knobs fast", "accepts 2 arg(s), received 1"},
	} {
		out, code := u.sh("testbed sandbox " + c.command)
		if code != 1 || !strings.Contains(out, c.want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: exit code %d, says %q, want one line with %q", c.command, code, out, c.want)
		}
	}
	if out, code := u.sh("unset SANDBOX; testbed sandbox kill fast"); code != 1 || !strings.Contains(out, "source the env file") {
		t.Errorf("without the env file: exit code %d, %q", code, out)
	}
}

func checkEnv(u *user) {
	t := u.t
	for _, name := range []string{"csi-attach-hub", "testbed"} {
		if out, _ := u.sh("command -v " + name); strings.TrimSpace(out) != filepath.Join(filepath.Dir(u.env), "bin", name) {
			t.Errorf("%s in PATH is %q", name, out)
		}
	}
	for _, name := range []string{"KUBECONFIG", "DRIVERS_YAML"} {
		if _, err := os.Stat(u.variable(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
