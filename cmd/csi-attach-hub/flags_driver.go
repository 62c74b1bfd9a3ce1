package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// settingOf has, for each of csi-attacher's flags about its driver, the setting of drivers.yaml that it sets. With --config
// they set the defaults, over which those of the files have precedence. With --csi-address they set the settings of the one driver.
var settingOf = map[string]string{
	"timeout":                   "timeout",
	"worker-threads":            "workers",
	"retry-interval-start":      "retry.initial",
	"retry-interval-max":        "retry.max",
	"reconcile-sync":            "drift.interval",
	"max-entries":               "drift.pageSize",
	"volume-attachment-timeout": "stuckAfter",
	"default-fstype":            "defaultFSType",
	"kube-api-qps":              "kubeAPI.qps",
	"kube-api-burst":            "kubeAPI.burst",
}

// addDriverFlags adds these flags. Their defaults depend on --csi-address, so the usage texts name them.
func addDriverFlags(set *pflag.FlagSet, s *registry.Settings) {
	set.DurationVar(&s.Timeout, "timeout", s.Timeout,
		"time limit of one attach or detach call (default 2m; with --csi-address 15s, as csi-attacher)")
	set.IntVar(&s.Workers, "worker-threads", s.Workers,
		"number of calls in flight at once for one driver (default 20; with --csi-address 10, as csi-attacher)")
	set.DurationVar(&s.Retry.Initial, "retry-interval-start", s.Retry.Initial,
		"wait after the first failure of a volume (default 500ms; with --csi-address 1s, as csi-attacher)")
	set.DurationVar(&s.Retry.Max, "retry-interval-max", s.Retry.Max,
		"longest wait after a failure of a volume (default 1m; with --csi-address 5m, as csi-attacher)")
	set.DurationVar(&s.Drift.Interval, "reconcile-sync", s.Drift.Interval,
		"interval of the ListVolumes check, 0 to turn it off (default 1m)")
	set.IntVar(&s.Drift.PageSize, "max-entries", s.Drift.PageSize,
		"number of volumes per page of ListVolumes, 0 to leave it to the driver (default 500; with --csi-address 0, as csi-attacher)")
	set.DurationVar(&s.StuckAfter, "volume-attachment-timeout", s.StuckAfter,
		"time without success after which a VolumeAttachment is reported as stuck (default 15m)")
	set.StringVar(&s.DefaultFSType, "default-fstype", s.DefaultFSType, "file system of volumes whose PersistentVolume names none")
	set.Float64Var(&s.KubeAPI.QPS, "kube-api-qps", s.KubeAPI.QPS,
		"writes to the Kubernetes API per second and driver, 0 or less for no limit (default no limit, with --csi-address too; csi-attacher has 5)")
	set.IntVar(&s.KubeAPI.Burst, "kube-api-burst", s.KubeAPI.Burst,
		"most writes to the Kubernetes API at once (default twice --kube-api-qps)")
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

// driverSettings returns the settings of a driver for which no file has any.
func (f *hubFlags) driverSettings(dropIn bool) (registry.Settings, error) {
	s := registry.DefaultSettings()
	if dropIn {
		s = csiAttacherSettings()
	}
	f.driver.KubeAPI.QPS = max(0, f.driver.KubeAPI.QPS) // in client-go a negative QPS means no limit
	var problems []error
	f.applyDriver(&s, func(flag string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("--%s: %w", flag, err))
		}
	})
	s.Retry.Initial = min(s.Retry.Initial, s.Retry.Max) // the maximum takes precedence, as in csi-attacher
	return s, errors.Join(problems...)
}

// applyDriver sets the settings for which a flag was given. It calls report for each, with what is wrong with its value.
func (f *hubFlags) applyDriver(s *registry.Settings, report func(flag string, err error)) {
	typed := pflag.NewFlagSet("", pflag.ContinueOnError)
	typed.SortFlags = false
	addDriverFlags(typed, s)
	typed.VisitAll(func(own *pflag.Flag) {
		if f.set.Changed(own.Name) {
			err := own.Value.Set(f.set.Lookup(own.Name).Value.String())
			report(own.Name, errors.Join(err, s.CheckSetting(settingOf[own.Name])))
		}
	})
}
