package fakecsi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
)

// Knobs is a set of changes to the behaviour and to the storage of a Backend. A
// field with its zero value changes nothing. All changes of one Knobs take effect
// at once: no call sees half of them.
type Knobs struct {
	// Name and Capabilities change what the driver announces. An empty, non-nil
	// list of capabilities means none.
	Name         string       `json:"name,omitempty"`
	Capabilities []Capability `json:"capabilities,omitzero"`

	// Latency is how long the calls of a method take. It is merged into the present
	// one. The empty Method stands for all methods without an entry.
	Latency map[Method]Latency `json:"latency,omitempty"`

	// Fail adds faults. The first added fault that matches a call hits it.
	Fail []Fault `json:"fail,omitempty"`
	// ClearFaults drops all faults before Fail adds new ones.
	ClearFaults bool `json:"clearFaults,omitempty"`

	// Hang makes calls that begin from now on wait for a release.
	Hang []Hang `json:"hang,omitempty"`
	// Release ends hangs equal to these, ReleaseAll ends every hang, both before
	// Hang adds new ones. The waiting calls go on.
	Release    []Hang `json:"release,omitempty"`
	ReleaseAll bool   `json:"releaseAll,omitempty"`

	// NotReady makes Probe answer ready=false. For a Probe that fails or hangs
	// use Fail and Hang.
	NotReady *bool `json:"notReady,omitempty"`

	// FinishAbandoned lets calls that begin from now on run to their end and change
	// the storage even if their caller leaves. Otherwise a call ends at once, without
	// effect, when its caller leaves.
	FinishAbandoned *bool `json:"finishAbandoned,omitempty"`

	// MaxVolumesPerNode is the limit beyond which a publish is answered
	// ResourceExhausted. 0 means no limit.
	MaxVolumesPerNode *int `json:"maxVolumesPerNode,omitempty"`

	// PublishContext is what a publish returns, instead of a devicePath.
	// An empty, non-nil map means nothing.
	PublishContext map[string]string `json:"publishContext,omitzero"`

	// LoseAttachments and GainAttachments change attachments without a call,
	// LoseVolumes and GainVolumes change volumes. Losing happens before gaining. An
	// empty node in LoseAttachments means all nodes.
	LoseAttachments []VolumeNode `json:"loseAttachments,omitempty"`
	GainAttachments []VolumeNode `json:"gainAttachments,omitempty"`
	LoseVolumes     []string     `json:"loseVolumes,omitempty"`
	GainVolumes     []string     `json:"gainVolumes,omitempty"`
}

// VolumeNode names a volume on a node.
type VolumeNode struct {
	Volume string `json:"volume"`
	Node   string `json:"node,omitempty"`
}

// Fault makes calls fail. Empty Method, Volume and Node match any.
type Fault struct {
	Method Method     `json:"method,omitempty"`
	Volume string     `json:"volume,omitempty"`
	Node   string     `json:"node,omitempty"`
	Code   codes.Code `json:"code"`
	// Message of the error; empty means a default that says it is injected.
	Message string `json:"message,omitempty"`
	// Count is how many matching calls fail; 0 means every one until ClearFaults.
	Count int `json:"count,omitempty"`
	// AfterEffect lets the call change the storage before it fails.
	AfterEffect bool `json:"afterEffect,omitempty"`
}

// Hang makes calls wait for Knobs.Release. Empty Method, Volume and Node match
// any. With AfterEffect the call changes the storage first, and only its answer
// waits: when the caller gives up, the volume is attached although the caller saw
// DeadlineExceeded.
type Hang struct {
	Method      Method `json:"method,omitempty"`
	Volume      string `json:"volume,omitempty"`
	Node        string `json:"node,omitempty"`
	AfterEffect bool   `json:"afterEffect,omitempty"`
}

// Latency is how long a call takes: Base and a random part of Jitter. In JSON
// both are strings such as "1.5s".
type Latency struct {
	Base, Jitter time.Duration
}

// AttachLatency returns knobs with that latency of each publish and unpublish.
func AttachLatency(l Latency) Knobs {
	return Knobs{Latency: map[Method]Latency{ControllerPublishVolume: l, ControllerUnpublishVolume: l}}
}

func (l Latency) draw() time.Duration {
	if l.Jitter <= 0 {
		return l.Base
	}
	return l.Base + rand.N(l.Jitter)
}

type latencyJSON struct {
	Base   durationText `json:"base"`
	Jitter durationText `json:"jitter,omitzero"`
}

// MarshalJSON writes the durations as strings.
func (l Latency) MarshalJSON() ([]byte, error) {
	return json.Marshal(latencyJSON{durationText(l.Base), durationText(l.Jitter)})
}

// UnmarshalJSON reads the durations from strings.
func (l *Latency) UnmarshalJSON(data []byte) error {
	var j latencyJSON
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(&j)
	if err == nil {
		*l = Latency{time.Duration(j.Base), time.Duration(j.Jitter)}
	}
	return err
}

// durationText is a duration that is a string such as "1.5s" in JSON; an empty string is 0.
type durationText time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d durationText) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *durationText) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(cmp.Or(string(text), "0"))
	*d = durationText(parsed)
	return err
}

// check reports the first error in the knobs. Set calls it before it changes anything.
func (k Knobs) check() error {
	if err := checkCapabilities(k.Capabilities); err != nil {
		return err
	}
	for m, l := range k.Latency {
		if err := checkMethod(m); err != nil {
			return fmt.Errorf("latency: %w", err)
		}
		if l.Base < 0 || l.Jitter < 0 {
			return fmt.Errorf("latency of %q is negative: %s, jitter %s", m, l.Base, l.Jitter)
		}
	}
	for _, f := range k.Fail {
		if err := f.check(); err != nil {
			return err
		}
	}
	for _, h := range slices.Concat(k.Hang, k.Release) {
		if err := checkMethod(h.Method); err != nil {
			return fmt.Errorf("hang: %w", err)
		}
	}
	if k.MaxVolumesPerNode != nil && *k.MaxVolumesPerNode < 0 {
		return fmt.Errorf("max volumes per node %d is negative: 0 means no limit", *k.MaxVolumesPerNode)
	}
	return k.checkChanges()
}

func (f Fault) check() error {
	if err := checkMethod(f.Method); err != nil {
		return fmt.Errorf("fail: %w", err)
	}
	if f.Code == codes.OK {
		return fmt.Errorf("fail %q: code OK is no failure", f.Method)
	}
	if f.Count < 0 {
		return fmt.Errorf("fail %q: count %d is negative: 0 means until cleared", f.Method, f.Count)
	}
	return nil
}

// checkChanges checks the knobs that change the storage.
func (k Knobs) checkChanges() error {
	for _, a := range slices.Concat(k.GainAttachments, k.LoseAttachments) {
		if a.Volume == "" {
			return fmt.Errorf("attachment to gain or lose names no volume: node %q", a.Node)
		}
	}
	for _, a := range k.GainAttachments {
		if a.Node == "" {
			return fmt.Errorf("attachment to gain of volume %q names no node", a.Volume)
		}
	}
	if slices.Contains(slices.Concat(k.GainVolumes, k.LoseVolumes), "") {
		return errors.New("volume to gain or lose has no name")
	}
	return nil
}

func checkMethod(m Method) error {
	if m != "" && !m.known() {
		return fmt.Errorf("unknown method %q: choose from %s", m, joinStrings(methods))
	}
	return nil
}
