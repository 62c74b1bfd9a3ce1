package status

import (
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Settings are the settings of a driver that the status shows, with the names of drivers.yaml.
type Settings struct {
	Timeout       Duration `json:"timeout"`
	MaxPerNode    int      `json:"maxPerNode"` // 0: no limit
	RetryInitial  Duration `json:"retryInitial"`
	RetryMax      Duration `json:"retryMax"`
	StuckAfter    Duration `json:"stuckAfter"`
	DriftInterval Duration `json:"driftInterval"` // 0: off
	DriftAction   string   `json:"driftAction"`
	// ParallelMultiNode: calls for one multi-node volume on different nodes run side by side.
	ParallelMultiNode bool `json:"parallelMultiNode"`
}

// SettingsOf returns the shown part of a driver's settings.
func SettingsOf(s registry.Settings) Settings {
	return Settings{
		Timeout:           Duration(s.Timeout),
		MaxPerNode:        s.MaxPerNode,
		RetryInitial:      Duration(s.Retry.Initial),
		RetryMax:          Duration(s.Retry.Max),
		StuckAfter:        Duration(s.StuckAfter),
		DriftInterval:     Duration(s.Drift.Interval),
		DriftAction:       string(s.Drift.Action),
		ParallelMultiNode: s.ParallelMultiNode,
	}
}

// Duration is written as in drivers.yaml: 2m, and not 120000000000.
type Duration time.Duration

// String writes 2m where time.Duration writes 2m0s.
func (d Duration) String() string { return registry.FormatDuration(time.Duration(d)) }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}
