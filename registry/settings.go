package registry

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"gopkg.in/yaml.v3"
)

// settings is every setting of a driver. A row gives its reading, range, default and place in
// the JSON Schema. A new setting also needs:
//   - a field of Settings (driver.go), and the code that obeys it (package hub);
//   - a line in drivers.yaml and in the table of deploy/CONFIGURE.md, which tests compare with
//     the row, in testdata/valid/full.yaml, and `make manifests`;
//   - its default in driver_test.go, if that is not the zero value, and its key in the
//     golden errors that list all keys (go test ./registry -update);
//   - a field of hub/status.Settings, if people are to see it on the page;
//   - a flag in cmd/csi-attach-hub/flags_driver.go, if csi-attacher has one for it.
var settings = []setting{
	row("mode", ModeActive, oneOf(ModeActive, ModeObserve, ModePaused), func(s *Settings) *Mode { return &s.Mode }),
	row("timeout", 2*time.Minute, duration(time.Millisecond, 24*time.Hour), func(s *Settings) *time.Duration { return &s.Timeout }),
	row("workers", 20, integer(1, 10000), func(s *Settings) *int { return &s.Workers }),
	row(retryInitial, 500*time.Millisecond, duration(time.Millisecond, 24*time.Hour), func(s *Settings) *time.Duration { return &s.Retry.Initial }),
	row(retryMax, time.Minute, duration(time.Millisecond, 24*time.Hour), func(s *Settings) *time.Duration { return &s.Retry.Max }),
	row("maxPerNode", 0, integer(0, 10000), func(s *Settings) *int { return &s.MaxPerNode }),
	row("parallelMultiNode", true, boolean(), func(s *Settings) *bool { return &s.ParallelMultiNode }),
	row("stuckAfter", 15*time.Minute, duration(time.Millisecond, 168*time.Hour), func(s *Settings) *time.Duration { return &s.StuckAfter }),
	row("drift.interval", time.Minute, offOrDuration(time.Second, 24*time.Hour), func(s *Settings) *time.Duration { return &s.Drift.Interval }),
	row("drift.pageSize", 500, integer(0, 100000), func(s *Settings) *int { return &s.Drift.PageSize }),
	row("drift.action", DriftReattach, oneOf(DriftReattach, DriftReport), func(s *Settings) *DriftAction { return &s.Drift.Action }),
	row("drift.unexpected", UnexpectedReport, oneOf(UnexpectedReport, UnexpectedDetach), func(s *Settings) *UnexpectedAction { return &s.Drift.Unexpected }),
	row("defaultFSType", "", word(128), func(s *Settings) *string { return &s.DefaultFSType }),
	row("probe.interval", 30*time.Second, duration(time.Second, 24*time.Hour), func(s *Settings) *time.Duration { return &s.Probe.Interval }),
	row("kubeAPI.qps", 0, offOrNumber(0.1, 100000), func(s *Settings) *float64 { return &s.KubeAPI.QPS }),
	row("kubeAPI.burst", 0, integer(0, 100000), func(s *Settings) *int { return &s.KubeAPI.Burst }),
	row("lease.name", "", dnsSubdomain(), func(s *Settings) *string { return &s.Lease.Name }).ofOneDriver(),
	row("lease.namespace", "", dnsLabel(), func(s *Settings) *string { return &s.Lease.Namespace }),
	row("secrets", "", secretPatterns(), func(s *Settings) *SecretPatterns { return &s.Secrets }),
	row("insecure", false, boolean(), func(s *Settings) *bool { return &s.Insecure }),
}

// The keys of the settings of which one may not exceed the other.
const retryInitial, retryMax = "retry.initial", "retry.max"

func (r Retry) check() error {
	if r.Max < r.Initial {
		return fmt.Errorf("%s: must not be below %s", retryMax, retryInitial)
	}
	return nil
}

// setting is one setting of a driver.
type setting struct {
	key        string // in drivers.yaml, "retry.max" for max under retry
	single     bool   // no two drivers can share a value: it has no place in defaults
	want       string // what a user is to write
	schema     schema // of its value
	setDefault func(s *Settings)
	read       func(n *yaml.Node, s *Settings) error // leaves s alone if it fails
	write      func(s Settings) (inYAML string)
	check      func(s Settings) error // nil if read takes the value
}

// row makes a setting from its key, its default, the type of its value and its place.
func row[T any](key string, byDefault T, v valueType[T], in func(*Settings) *T) setting {
	return setting{
		key:        key,
		want:       v.want,
		schema:     v.schema,
		setDefault: func(s *Settings) { *in(s) = byDefault },
		read: func(n *yaml.Node, s *Settings) error {
			value, err := v.read(n)
			if err == nil {
				*in(s) = value
			}
			return err
		},
		write: func(s Settings) string { return v.write(*in(&s)) },
		check: func(s Settings) error { return v.check(*in(&s)) },
	}
}

// ofOneDriver marks a setting that no two drivers can share.
func (s setting) ofOneDriver() setting {
	s.single = true
	return s
}

// DefaultSettings returns the built-in defaults.
func DefaultSettings() Settings {
	var s Settings
	for i := range settings {
		settings[i].setDefault(&s)
	}
	return s
}

// Check returns an error that names each setting that is out of range, with its key, on a
// line of its own.
func (s Settings) Check() error {
	var problems []error
	for i := range settings {
		if err := s.CheckSetting(settings[i].key); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", settings[i].key, err))
		}
	}
	problems = append(problems, s.Retry.check())
	return errors.Join(problems...)
}

// CheckSetting returns an error if the setting with a key of drivers.yaml is out of range.
// It panics if there is no such setting.
func (s Settings) CheckSetting(key string) error {
	return settings[indexOf(key)].check(s)
}

func indexOf(key string) int {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
	if i < 0 {
		panic("registry: there is no setting " + key)
	}
	return i
}

// defaultsMapping is what defaults may hold.
var defaultsMapping = settingFields(true)

// settingFields returns the fields of all settings; shared says that they hold for several
// drivers.
func settingFields(shared bool) mapping {
	fields := make(mapping, len(settings))
	for i, s := range settings {
		value := maps.Clone(s.schema)
		value["description"] = s.want + "; default " + s.write(DefaultSettings())
		fields[i] = field{key: s.key, misplaced: shared && s.single, schema: value}
	}
	return fields
}

// scope is the settings that hold in one mapping of a file, defaults or the entry of a
// driver, and where each of them was written.
type scope struct {
	Settings
	origins map[string]origin // by key; none for a built-in default
}

// origin is where a setting was written.
type origin struct {
	file string // "" for the one that is read
	line int
	ok   bool // it could be read
}

// settings reads what a mapping says on top of the outer scope, which stays as
// it is. A namespace "" is that of the program.
func (p *parser) settings(o object, outer scope) scope {
	s := scope{Settings: outer.Settings, origins: map[string]origin{}}
	maps.Copy(s.origins, outer.origins)
	for i := range settings {
		key := settings[i].key
		value, written := o.values[key]
		if !written {
			continue
		}
		err := settings[i].read(value, &s.Settings)
		p.reportValue(value, o.child(key), err)
		s.origins[key] = origin{line: value.Line, ok: err == nil}
	}
	s.Lease.Namespace = cmp.Or(s.Lease.Namespace, p.base.Lease.Namespace)
	p.checkRetry(o, s)
	p.warnSettings(o, s)
	return s
}

// checkRetry reports a retry.max below retry.initial at the one that was written in this
// mapping: what the outer scope says was checked there.
func (p *parser) checkRetry(o object, s scope) {
	if s.Retry.check() == nil || !s.readable(retryInitial) || !s.readable(retryMax) {
		return
	}
	if value, written := o.values[retryMax]; written {
		p.reportf(value.Line, o.child(retryMax), "must not be below %s: raise one or lower the other", s.describe(retryInitial))
	} else if value, written := o.values[retryInitial]; written {
		p.reportf(value.Line, o.child(retryInitial), "must not be above %s: lower one or raise the other", s.describe(retryMax))
	}
}

// readable reports whether the value of a setting is the one that was meant.
func (s *scope) readable(key string) bool {
	from, written := s.origins[key]
	return !written || from.ok
}

// describe names a setting with its value and its origin.
func (s *scope) describe(key string) string {
	i := indexOf(key)
	value, where := settings[i].write(s.Settings), "by default"
	if value != settings[i].write(DefaultSettings()) {
		where = "by a flag"
	}
	if from, written := s.origins[key]; written {
		if where = fmt.Sprintf("line %d", from.line); from.file != "" {
			where = fmt.Sprintf("%s:%d", from.file, from.line)
		}
	}
	return fmt.Sprintf("%s, which is %s (%s)", key, value, where)
}
