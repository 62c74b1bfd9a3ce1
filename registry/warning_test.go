package registry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestWhatIsDoubtfulIsWarnedOfOnce(t *testing.T) {
	config, err := registry.Parse("f.yaml", []byte(header+`defaults:
  timeout: 14s
  insecure: true
drivers:
  - {name: inherits-the-timeout, endpoint: "unix:///a"}
  - {name: enough, endpoint: "unix:///b", timeout: 15s, workers: 1000}
  - {name: many, endpoint: "unix:///c", workers: 1001, insecure: true}
  - {name: far, endpoint: "tcp://csi:9443", timeout: 1s}
  - {name: near, endpoint: "tcp://localhost:9443", insecure: true}
  - {name: Capitals, endpoint: "unix:///d", kubeAPI: {burst: 5}}
  - {name: Capitals.too, endpoint: "unix:///e", lease: {name: l}, kubeAPI: {qps: 2, burst: 5}}
  - {name: secured, endpoint: "tcp://csi:9444", tls: {caFile: /ca, certFile: /crt, keyFile: /key}}
`))
	check(t, err)
	var got []string
	for _, w := range config.Warnings() {
		before, _, _ := strings.Cut(w.String(), ": "+w.Message)
		got = append(got, before)
	}
	want := []string{
		"f.yaml:4: warning: defaults.timeout", "f.yaml:5: warning: defaults.insecure",
		"f.yaml:9: warning: drivers[2].workers", "f.yaml:9: warning: drivers[2].insecure",
		"f.yaml:10: warning: drivers[3].timeout", "f.yaml:10: warning: drivers[3].endpoint",
		"f.yaml:11: warning: drivers[4].endpoint",
		"f.yaml:12: warning: drivers[5].kubeAPI.burst", "f.yaml:12: warning: drivers[5].name",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the warnings differ (-want +got):\n%s", diff)
	}
}

func TestEntryMadeActiveWithoutLeaseNamespaceIsWarnedOfWhereTheNamespaceOfTheHubIsNotKnown(t *testing.T) {
	const active = "drivers:\n- {name: a, endpoint: \"unix:///a\", mode: active"
	for name, test := range map[string]struct {
		file   string
		base   string // --leader-election-namespace of the hub
		warned bool
	}{
		"active":                           {active + "}\n", "", true},
		"with the name of a lease only":    {active + ", lease: {name: l}}\n", "", true},
		"in the hub":                       {active + "}\n", "csi-attach-hub", false},
		"with a namespace":                 {active + ", lease: {namespace: kube-system}}\n", "", false},
		"with the namespace of the hub":    {active + ", lease: {namespace: \"\"}}\n", "", false},
		"with a namespace in defaults":     {"defaults: {lease: {namespace: kube-system}}\n" + active + "}\n", "", false},
		"with \"\" in defaults":            {"defaults: {lease: {namespace: \"\"}}\n" + active + "}\n", "", true},
		"active because nothing else said": {strings.ReplaceAll(active, ", mode: active", "") + "}\n", "", false},
		"active by defaults":               {"defaults: {mode: active}\n" + strings.ReplaceAll(active, ", mode: active", "") + "}\n", "", false},
		"observe":                          {strings.ReplaceAll(active, "active", "observe") + "}\n", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			base := registry.DefaultSettings()
			base.Lease.Namespace = test.base
			path := t.TempDir() + "/drivers.yaml"
			write(t, path, header+test.file)
			file, err := registry.NewFile(path, base)
			check(t, err)
			var got []string
			for _, w := range file.Config().Warnings() {
				got = append(got, w.Path)
			}
			var want []string
			if test.warned {
				want = []string{"drivers[0].mode"}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the warnings differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatBecomesDoubtfulWhileTheFileIsFollowedIsLogged(t *testing.T) {
	path := t.TempDir() + "/drivers.yaml"
	const first = `{name: a, endpoint: "unix:///a", timeout: 1s}`
	write(t, path, header+"drivers:\n- "+first+"\n")
	f := newFile(t, path, time.Millisecond)
	ctx, lines := logContext(t)
	r := runSourceWith(t, ctx, follow(f))
	r.expect("a")
	write(t, path, header+"# one line more\ndrivers:\n- "+first+"\n- {name: b, endpoint: \"unix:///b\", workers: 2000}\n")
	r.expect("a", "b")
	logged(t, lines, "Configuration reloaded")
	logged(t, lines, "drivers[1].workers")
	r.stop()
}
