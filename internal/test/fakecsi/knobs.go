package fakecsi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
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

// Latency is how long a call takes: Base and a random part of Jitter.
type Latency struct {
	Base   time.Duration `json:"base"`
	Jitter time.Duration `json:"jitter,omitempty"`
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

// ParseKnobs decodes Knobs from JSON.
func ParseKnobs(data []byte) (Knobs, error) {
	var k Knobs
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&k); err != nil {
		return Knobs{}, fmt.Errorf("invalid knobs: %w: write an object with %s", err, strings.Join(fieldNames(k), ", "))
	}
	return k, k.check()
}

// fieldNames returns the names of the knobs in JSON.
func fieldNames(k Knobs) (names []string) {
	for f := range reflect.TypeOf(k).Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// check reports the first name in the knobs that does not exist. Set calls it before it changes anything.
func (k Knobs) check() error {
	used := slices.Collect(maps.Keys(k.Latency))
	for _, f := range k.Fail {
		if f.Code == codes.OK {
			return fmt.Errorf("fail %q: code OK is no failure", f.Method)
		}
		used = append(used, f.Method)
	}
	for _, h := range slices.Concat(k.Hang, k.Release) {
		used = append(used, h.Method)
	}
	for _, m := range used {
		if m != "" && !slices.Contains(methods, m) {
			return fmt.Errorf("unknown method %q: choose from %s", m, joinStrings(methods))
		}
	}
	return checkCapabilities(k.Capabilities)
}
