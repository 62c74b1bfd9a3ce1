package registry_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestSettingsOutOfRangeAreAllNamed(t *testing.T) {
	check(t, registry.DefaultSettings().Check())
	s := registry.DefaultSettings()
	s.Mode = ""
	s.Timeout, s.Retry.Initial = -time.Second, time.Hour
	s.Workers, s.DefaultFSType, s.Lease.Name = 0, "a b\n", "Capital"
	s.KubeAPI.QPS = math.NaN()
	var got []string
	for line := range strings.SplitSeq(s.Check().Error(), "\n") {
		key, _, _ := strings.Cut(line, ": must be ")
		got = append(got, key)
	}
	want := "mode timeout workers defaultFSType kubeAPI.qps lease.name retry.max: must not be below retry.initial"
	if strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := s.CheckSetting("workers"); err == nil || !strings.Contains(err.Error(), "a whole number from 1 to 10000, not the number 0") {
		t.Errorf("got %v", err)
	}
}

func TestFlagsHoldWhereTheFileSaysNothing(t *testing.T) {
	path := t.TempDir() + "/drivers.yaml"
	write(t, path, header+`defaults: {workers: 5}
drivers:
  - {name: a, endpoint: "unix:///a", timeout: 7m}
  - {name: b, endpoint: "unix:///b", lease: {namespace: ""}}
`)
	base := registry.DefaultSettings()
	base.Timeout, base.Workers, base.Retry.Max, base.Lease.Namespace = 3*time.Minute, 9, 20*time.Second, "hub"
	f, err := registry.NewFile(path, base)
	check(t, err)
	want := base
	want.Workers = 5
	if got := f.Config().Drivers()["b"].Settings; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := f.Config().Defaults(); got != want {
		t.Errorf("got the defaults %+v, want %+v", got, want)
	}
	want.Timeout = 7 * time.Minute
	if got := f.Config().Drivers()["a"].Settings; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// A mistake says where the other half of it comes from.
	write(t, path, header+`drivers: [{name: a, endpoint: "unix:///a", retry: {initial: 30s}}]`)
	_, err = registry.NewFile(path, base)
	if err == nil || !strings.Contains(err.Error(), "retry.max, which is 20s") {
		t.Errorf("got %v", err)
	}
	// And the namespace of the program is that of whoever names it.
	write(t, path, header+`drivers:
- {name: a, endpoint: "unix:///a", lease: {name: l}}
- {name: b, endpoint: "unix:///b", lease: {name: l, namespace: hub}}
- {name: c, endpoint: "unix:///c", lease: {name: l, namespace: ""}}
`)
	_, err = registry.NewFile(path, base)
	if err == nil || strings.Count(err.Error(), "uses the lease hub/l") != 2 {
		t.Errorf("got %v", err)
	}
	if _, err := registry.NewFile(path, registry.Settings{Workers: 1}); err == nil || !strings.Contains(err.Error(), "defaults") {
		t.Errorf("got %v", err)
	}
}
