package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/util/validation"
)

// settingTable is every setting of a driver. A field gives its reading, range, default and place in
// the JSON Schema. A new setting also needs:
//   - a field of Settings (driver.go), and the code that obeys it (packages driver and reconcile);
//   - a line in drivers.yaml and in the table of deploy/CONFIGURE.md, which tests compare with
//     it, in testdata/valid/full.yaml, and `make manifests`;
//   - its default in driver_test.go, if that is not the zero value, and its key in the
//     golden errors that list all keys (go test ./registry -update);
//   - a field of hub/status.Settings, if a diagnosis depends on it;
//   - a flag in cmd/csi-attach-hub/flags_driver.go, if csi-attacher has one for it.
var settingTable = table[Driver]{
	setting("mode", ModeActive, oneOf(ModeActive, ModeObserve, ModePaused), func(d *Driver) *Mode { return &d.Mode }),
	setting("timeout", 2*time.Minute, duration(time.Millisecond, 24*time.Hour), func(d *Driver) *time.Duration { return &d.Timeout }),
	setting("workers", 20, integer(1, 10000), func(d *Driver) *int { return &d.Workers }),
	{key: "retry", group: table[Driver]{
		setting("initial", 500*time.Millisecond, duration(time.Millisecond, 24*time.Hour), func(d *Driver) *time.Duration { return &d.Retry.Initial }),
		setting("max", time.Minute, duration(time.Millisecond, 24*time.Hour), func(d *Driver) *time.Duration { return &d.Retry.Max }),
	}},
	setting("maxPerNode", 0, integer(0, 10000), func(d *Driver) *int { return &d.MaxPerNode }),
	setting("parallelMultiNode", true, boolean(), func(d *Driver) *bool { return &d.ParallelMultiNode }),
	setting("stuckAfter", 15*time.Minute, duration(time.Millisecond, 168*time.Hour), func(d *Driver) *time.Duration { return &d.StuckAfter }),
	{key: "drift", group: table[Driver]{
		setting("interval", time.Minute, offOrDuration(time.Second, 24*time.Hour), func(d *Driver) *time.Duration { return &d.Drift.Interval }),
		setting("pageSize", 500, integer(0, 100000), func(d *Driver) *int { return &d.Drift.PageSize }),
		setting("action", DriftReattach, oneOf(DriftReattach, DriftReport), func(d *Driver) *DriftAction { return &d.Drift.Action }),
		setting("unexpected", UnexpectedReport, oneOf(UnexpectedReport, UnexpectedDetach),
			func(d *Driver) *UnexpectedAction { return &d.Drift.Unexpected }),
	}},
	setting("defaultFSType", "", word(128), func(d *Driver) *string { return &d.DefaultFSType }),
	{key: "probe", group: table[Driver]{
		setting("interval", 30*time.Second, duration(time.Second, 24*time.Hour), func(d *Driver) *time.Duration { return &d.Probe.Interval }),
	}},
	{key: "kubeAPI", group: table[Driver]{
		setting("qps", 0, offOrNumber(0.1, 100000), func(d *Driver) *float64 { return &d.KubeAPI.QPS }),
		setting("burst", 0, integer(0, 100000), func(d *Driver) *int { return &d.KubeAPI.Burst }),
	}},
	{key: "lease", group: table[Driver]{
		setting("name", "", objectName("subdomain (small letters, digits, '-' and '.'",
			validation.IsDNS1123Subdomain, validation.DNS1123SubdomainMaxLength, subdomainForm), func(d *Driver) *string { return &d.Lease.Name }),
		setting("namespace", "", objectName("label (small letters, digits, '-'",
			validation.IsDNS1123Label, validation.DNS1123LabelMaxLength, labelForm), func(d *Driver) *string { return &d.Lease.Namespace }),
	}},
	setting("secrets", "", secretPatterns(), func(d *Driver) *SecretPatterns { return &d.Secrets }),
	setting("insecure", false, boolean(), func(d *Driver) *bool { return &d.Insecure }),
}

// settings are the fields of settingTable with whole keys, like retry.max.
var settings = settingTable.leaves()

// setting returns the field of a setting from its key, its default, the type of its value and its place.
func setting[T any](key string, byDefault T, k valueType[T], in func(*Driver) *T) field[Driver] {
	k.schema = k.schema.with(k.want + "; default " + k.write(byDefault))
	r := value(key, k, in)
	r.setDefault = func(d *Driver) { *in(d) = byDefault }
	return r
}

// DefaultSettings returns the built-in defaults.
func DefaultSettings() Settings {
	var d Driver
	for _, s := range settings {
		s.setDefault(&d)
	}
	return d.Settings
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
	if s.Retry.Max < s.Retry.Initial {
		problems = append(problems, errors.New("retry.max: must not be below retry.initial"))
	}
	return errors.Join(problems...)
}

// CheckSetting returns an error if the setting with a key of drivers.yaml is out of range.
// It panics if there is no such setting.
func (s Settings) CheckSetting(key string) error {
	r := settings[slices.IndexFunc(settings, func(r field[Driver]) bool { return r.key == key })]
	p, d := newParser(""), Driver{Settings: s}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(r.write(&d)), &document); err != nil || len(document.Content) == 0 {
		return errors.New("must be " + r.want)
	}
	if r.read(p, document.Content[0], key, &d); p.errors != nil {
		return errors.New(p.errors[0].Message)
	}
	return nil
}

// finish completes and checks settings that were read from the mapping at a path, on top of those outside of it.
// A namespace "" is that of the program.
func (p *parser) finish(s *Settings, path string) {
	s.Lease.Namespace = cmp.Or(s.Lease.Namespace, p.base.Lease.Namespace)
	initial, most := path+".retry.initial", path+".retry.max"
	if s.Retry.Max >= s.Retry.Initial || p.misread[initial] || p.misread[most] ||
		p.misread["defaults.retry.initial"] || p.misread["defaults.retry.max"] {
		return
	}
	if n := p.values[most]; n != nil {
		p.reportf(n.Line, most, "must not be below retry.initial, which is %s: raise one or lower the other", FormatDuration(s.Retry.Initial))
	} else if n := p.values[initial]; n != nil {
		p.reportf(n.Line, initial, "must not be above retry.max, which is %s: lower one or raise the other", FormatDuration(s.Retry.Max))
	}
}
