package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// driverFlags are csi-attacher's flags about its driver. Each stands for a setting of
// drivers.yaml. With --config they set the defaults, over which those of the file have
// precedence. With --csi-address they set the settings of the one driver.
type driverFlags struct {
	values   registry.Settings // zero for flags that were not given
	bindings []driverFlag
}

// driverFlag binds a flag to a setting.
type driverFlag struct {
	name  string
	key   string // of the setting
	apply func(s *registry.Settings)
}

// bind binds a flag to a field of the settings. It returns the variable for the flag's value.
func bind[T any](f *driverFlags, name, key string, field func(*registry.Settings) *T) *T {
	value := field(&f.values)
	f.bindings = append(f.bindings, driverFlag{name: name, key: key, apply: func(s *registry.Settings) { *field(s) = *value }})
	return value
}

// add adds the flags. Their defaults depend on --csi-address, so the usage texts name them.
func (f *driverFlags) add(set *pflag.FlagSet) {
	type settings = registry.Settings
	duration := func(name, key, usage string, field func(*settings) *time.Duration) {
		set.DurationVar(bind(f, name, key, field), name, 0, usage)
	}
	integer := func(name, key, usage string, field func(*settings) *int) {
		set.IntVar(bind(f, name, key, field), name, 0, usage)
	}
	duration("timeout", "timeout", "time limit of one attach or detach call (default 2m; with --csi-address 15s, as csi-attacher)",
		func(s *settings) *time.Duration { return &s.Timeout })
	integer("worker-threads", "workers", "number of calls in flight at once for one driver (default 20; with --csi-address 10, as csi-attacher)",
		func(s *settings) *int { return &s.Workers })
	duration("retry-interval-start", "retry.initial", "wait after the first failure of a volume (default 500ms; with --csi-address 1s, as csi-attacher)",
		func(s *settings) *time.Duration { return &s.Retry.Initial })
	duration("retry-interval-max", "retry.max", "longest wait after a failure of a volume (default 1m; with --csi-address 5m, as csi-attacher)",
		func(s *settings) *time.Duration { return &s.Retry.Max })
	duration("reconcile-sync", "drift.interval", "interval of the ListVolumes check, 0 to turn it off (default 1m)",
		func(s *settings) *time.Duration { return &s.Drift.Interval })
	integer("max-entries", "drift.pageSize", "number of volumes per page of ListVolumes, 0 to leave it to the driver (default 500; with --csi-address 0, as csi-attacher)",
		func(s *settings) *int { return &s.Drift.PageSize })
	duration("volume-attachment-timeout", "stuckAfter", "time without success after which a VolumeAttachment is reported as stuck (default 15m)",
		func(s *settings) *time.Duration { return &s.StuckAfter })
	set.StringVar(bind(f, "default-fstype", "defaultFSType", func(s *settings) *string { return &s.DefaultFSType }), "default-fstype", "",
		"file system of volumes whose PersistentVolume names none")
	set.Float64Var(bind(f, "kube-api-qps", "kubeAPI.qps", func(s *settings) *float64 { return &s.KubeAPI.QPS }), "kube-api-qps", 0,
		"writes to the Kubernetes API per second and driver, 0 or less for no limit (default no limit, with --csi-address too; csi-attacher has 5)")
	integer("kube-api-burst", "kubeAPI.burst", "most writes to the Kubernetes API at once (default twice --kube-api-qps)",
		func(s *settings) *int { return &s.KubeAPI.Burst })
}

// csiAttacherSettings returns csi-attacher's defaults, except its limit of 5 writes per second.
func csiAttacherSettings() registry.Settings {
	s := registry.DefaultSettings()
	s.Timeout = 15 * time.Second
	s.Workers = 10
	s.Retry = registry.Retry{Initial: time.Second, Max: 5 * time.Minute}
	s.Drift.PageSize = 0
	return s
}

// settings returns the settings of a driver for which no file has any.
func (f *driverFlags) settings(given given, dropIn bool) (registry.Settings, error) {
	s := registry.DefaultSettings()
	if dropIn {
		s = csiAttacherSettings()
	}
	f.values.KubeAPI.QPS = max(0, f.values.KubeAPI.QPS) // in client-go a negative QPS means no limit
	var problems []error
	for _, flag := range f.bindings {
		if !given(flag.name) {
			continue
		}
		flag.apply(&s)
		if err := s.CheckSetting(flag.key); err != nil {
			problems = append(problems, fmt.Errorf("--%s: %w", flag.name, err))
		}
	}
	s.Retry.Initial = min(s.Retry.Initial, s.Retry.Max) // the maximum takes precedence, as in csi-attacher
	return s, errors.Join(problems...)
}

// warnings returns the flags that were given and have no effect.
func (f *driverFlags) warnings(given given) []string {
	if given("kube-api-burst") && f.values.KubeAPI.QPS <= 0 {
		return []string{"--kube-api-burst has no effect without --kube-api-qps: writes are not limited"}
	}
	return nil
}
