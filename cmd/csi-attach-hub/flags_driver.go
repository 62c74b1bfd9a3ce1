package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// driverFlags are csi-attacher's flags about its driver. With --config they hold
// where the file says nothing, with --csi-address for the one driver.
type driverFlags struct {
	values registry.Settings // what was given; the others are zero
	rows   []driverFlag
}

// driverFlag is a flag that stands for a setting of drivers.yaml.
type driverFlag struct {
	name  string
	key   string // of the setting
	apply func(s *registry.Settings)
}

// bind makes a flag, which is added to the set already, one for a setting.
func bind[T any](f *driverFlags, name, key string, field func(*registry.Settings) *T) *T {
	value := field(&f.values)
	f.rows = append(f.rows, driverFlag{name: name, key: key, apply: func(s *registry.Settings) { *field(s) = *value }})
	return value
}

func (f *driverFlags) add(set *pflag.FlagSet) {
	type settings = registry.Settings
	duration := func(name, key, usage string, field func(*settings) *time.Duration) {
		set.DurationVar(bind(f, name, key, field), name, 0, usage)
	}
	integer := func(name, key, usage string, field func(*settings) *int) {
		set.IntVar(bind(f, name, key, field), name, 0, usage)
	}
	duration("timeout", "timeout", "how long one attach or detach call may take (default 2m; with --csi-address 15s, as csi-attacher)",
		func(s *settings) *time.Duration { return &s.Timeout })
	integer("worker-threads", "workers", "calls in flight at once for one driver (default 20; with --csi-address 10, as csi-attacher)",
		func(s *settings) *int { return &s.Workers })
	duration("retry-interval-start", "retry.initial", "how long a failed volume waits for its next try at first (default 500ms; with --csi-address 1s, as csi-attacher)",
		func(s *settings) *time.Duration { return &s.Retry.Initial })
	duration("retry-interval-max", "retry.max", "how long it waits after many failures (default 1m; with --csi-address 5m, as csi-attacher)",
		func(s *settings) *time.Duration { return &s.Retry.Max })
	duration("reconcile-sync", "drift.interval", "how often ListVolumes is asked whether Kubernetes still agrees, 0 for never (default 1m)",
		func(s *settings) *time.Duration { return &s.Drift.Interval })
	integer("max-entries", "drift.pageSize", "volumes on one page of ListVolumes, 0 leaves it to the driver (default 500; with --csi-address 0, as csi-attacher)",
		func(s *settings) *int { return &s.Drift.PageSize })
	duration("volume-attachment-timeout", "stuckAfter", "after so long without success a VolumeAttachment is reported as stuck (default 15m)",
		func(s *settings) *time.Duration { return &s.StuckAfter })
	set.StringVar(bind(f, "default-fstype", "defaultFSType", func(s *settings) *string { return &s.DefaultFSType }), "default-fstype", "",
		"file system of volumes whose PersistentVolume names none")
	set.Float64Var(bind(f, "kube-api-qps", "kubeAPI.qps", func(s *settings) *float64 { return &s.KubeAPI.QPS }), "kube-api-qps", 0,
		"writes to the Kubernetes API per second and driver, 0 or less for no limit (default no limit, with --csi-address too; csi-attacher has 5)")
	integer("kube-api-burst", "kubeAPI.burst", "such writes at once after a rest (default twice --kube-api-qps)",
		func(s *settings) *int { return &s.KubeAPI.Burst })
}

// csiAttacherSettings is how csi-attacher serves a driver about which its flags say
// nothing. Its 5 writes per second are left out: nobody who replaces it wants to
// keep that.
func csiAttacherSettings() registry.Settings {
	s := registry.DefaultSettings()
	s.Timeout = 15 * time.Second
	s.Workers = 10
	s.Retry = registry.Retry{Initial: time.Second, Max: 5 * time.Minute}
	s.Drift.PageSize = 0
	return s
}

// settings returns what holds for a driver about which no file says anything.
func (f *driverFlags) settings(given given, dropIn bool) (registry.Settings, error) {
	s := registry.DefaultSettings()
	if dropIn {
		s = csiAttacherSettings()
	}
	f.values.KubeAPI.QPS = max(0, f.values.KubeAPI.QPS) // below zero: no limit, to client-go
	var problems []error
	for _, row := range f.rows {
		if !given(row.name) {
			continue
		}
		row.apply(&s)
		if err := s.CheckSetting(row.key); err != nil {
			problems = append(problems, fmt.Errorf("--%s: %w", row.name, err))
		}
	}
	s.Retry.Initial = min(s.Retry.Initial, s.Retry.Max) // as csi-attacher: the maximum goes before
	if dropIn {
		// There it is the limit of a listing too, however many pages that has.
		s.Drift.Timeout = max(s.Drift.Timeout, s.Timeout)
	}
	return s, errors.Join(problems...)
}

// warnings says what was given and has no effect.
func (f *driverFlags) warnings(given given) []string {
	if given("kube-api-burst") && f.values.KubeAPI.QPS <= 0 {
		return []string{"--kube-api-burst has no effect without --kube-api-qps: there is no limit"}
	}
	return nil
}
