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
	u, guide := startSandbox(t)
	for _, tt := range []struct {
		name string
		run  func(u *user, guide string)
	}{
		{"answers mistakes with what is valid", checkMistakes},
		{"writes an env file that names everything", checkEnv},
		{"has recipes that do what they say, and a way back", checkRecipes},
	} {
		t.Run(tt.name, func(t *testing.T) {
			of := *u
			of.t = t
			tt.run(&of, guide)
		})
	}
}

func checkRecipes(u *user, guide string) {
	t := u.t
	hub, hub2, fast := u.variable("HUB"), u.variable("HUB2"), u.variable("FAST_SOCKET")
	effects := map[string]struct{ done, undone func(context.Context) error }{
		"Make a driver hang":        {u.hangs("fast", "fast-hung"), u.pod("fast-hung", "none")},
		"Make a volume stuck":       {both(u.stuck("flaky"), u.pod("flaky-stuck", "Internal")), u.pod("flaky-stuck", "none")},
		"Make a driver fail":        {u.pod("slow-failing", "Internal"), u.pod("slow-failing", "none")},
		"Fill the nodes":            {u.pod("fast-toomany", "ResourceExhausted"), u.pod("fast-toomany", "none")},
		"Kill a driver":             {both(u.listens("unix", fast, false), u.pod("fast-waiting", "waiting")), both(u.listens("unix", fast, true), u.pod("fast-waiting", "none"))},
		"Pause a driver":            {both(u.mode("fast", "paused"), u.pod("fast-paused", "waiting")), both(u.mode("fast", "active"), u.pod("fast-paused", "none"))},
		"Put a driver into observe": {both(u.mode("slow", "observe"), u.pod("slow-observed", "waiting")), both(u.mode("slow", "active"), u.pod("slow-observed", "none"))},
		"Start a second hub":        {u.listens("tcp", hub2, true), u.listens("tcp", hub2, false)},
		"Kill a hub":                {both(u.listens("tcp", hub, false), u.listens("tcp", hub2, true)), both(u.listens("tcp", hub, true), u.listens("tcp", hub2, false))},
	}
	for _, r := range recipes() {
		title, _, _ := strings.Cut(r.title, ":")
		title, _, _ = strings.Cut(title, ",")
		effect, ok := effects[strings.TrimSuffix(title, " of a driver")]
		if !ok {
			t.Errorf("the effect of recipe %q is not tested", title)
			continue
		}
		began := time.Now()
		u.follow(guide, r.do)
		u.must(title, effect.done)
		u.look(guide, r.look)
		u.follow(guide, r.back)
		u.must(title+", the way back", effect.undone)
		t.Logf("%s: %v", title, time.Since(began).Round(time.Millisecond))
	}
}

func checkMistakes(u *user, _ string) {
	t := u.t
	for _, c := range []struct{ command, want string }{
		{"kill fats", `unknown name "fats": choose from fast, slow, flaky, hanging, hub, hub-2`},
		{"start fast", "fast runs already"},
		{"start hub", "hub runs already (pid "},
		{"stop hub-2", "hub-2 does not run; start it with: testbed sandbox start hub-2"},
		{"add extra", `name "extra" of a Pod does not begin with a driver`},
		{"add fast-1", `"fast-1" already exists`},
		{"remove fast-none", `"fast-none" not found`},
		{"knobs fast '{\"hangs\":1}'", `unknown knob "hangs": choose from capabilities`},
		{"knobs fats '{}'", `unknown name "fats": choose from fast, slow, flaky, hanging`},
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

func checkEnv(u *user, _ string) {
	t := u.t
	for _, name := range []string{"csi-attach-hub", "testbed"} {
		if out, _ := u.sh("command -v " + name); strings.TrimSpace(out) != filepath.Join(filepath.Dir(u.env), "bin", name) {
			t.Errorf("%s in PATH is %q", name, out)
		}
	}
	for _, name := range []string{"KUBECONFIG", "DRIVERS_YAML", "SLOW_SOCKET", "HANGING_CONTROL"} {
		if _, err := os.Stat(u.variable(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
