package crash

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// Ending says how the work of the first process ends in a scenario.
type Ending int

const (
	// Killed: the process works until it is killed.
	Killed Ending = iota
	// Drained: SIGTERM arrives while calls are in flight.
	Drained
	// HandedOver: the lease moves while calls are in flight. The process that hands it over is killed.
	HandedOver
	// TakenOver is HandedOver, but the process that takes the lease over is killed, and the first takes it back.
	TakenOver
)

// Scenario is something that a process does for a driver, in which it may be killed.
type Scenario struct {
	Name        string
	Ending      Ending
	settings    string                // of the driver, as in drivers.yaml
	volumes     []string              // PersistentVolumes, and their handles
	attachments map[string]attachment // by VolumeAttachment: what it may publish
	setup       func(context.Context, *trial) error
	trigger     func(context.Context, *trial) error // begins what is counted
	later       func(context.Context, *trial) error // TakenOver: work for the process that takes over
	wish        wish
	last        string // the step that ends the work, where the wish is fulfilled before it

	loses    bool // the trigger makes the storage lose an attachment, which the driver's list shows
	dangling bool // the trigger removes a VolumeAttachment whose volume stays attached
}

// wish is the state that a scenario ends in, whoever is killed.
type wish struct {
	attached map[string]call // volume and node ID by VolumeAttachment; all others are gone
	volumes  []string        // PersistentVolumes that remain
}

// Scenarios returns all of them.
func Scenarios() []Scenario {
	oneVolume, onFirst := []string{"v1"}, attachment{"v1", []string{"id1"}}
	attach := func(ctx context.Context, t *trial) error { return t.attach(ctx, "va1", "v1", "n1") }
	attached := func(ctx context.Context, t *trial) error {
		if err := attach(ctx, t); err != nil {
			return err
		}
		return t.waitAttached(ctx, "va1")
	}
	detach := func(ctx context.Context, t *trial) error { return t.detach(ctx, "va1") }
	none := wish{volumes: oneVolume}
	first := wish{map[string]call{"va1": {volume: "v1", node: "id1"}}, oneVolume}
	scenarios := []Scenario{
		{Name: "attach", volumes: oneVolume, attachments: map[string]attachment{"va1": onFirst}, trigger: attach, wish: first},
		{Name: "detach", volumes: oneVolume, attachments: map[string]attachment{"va1": onFirst}, setup: attached, trigger: detach, wish: none},
		{
			Name: "move", volumes: oneVolume, attachments: map[string]attachment{"va1": onFirst, "va2": {"v1", []string{"id2"}}}, setup: attached,
			trigger: func(ctx context.Context, t *trial) error {
				if err := t.detach(ctx, "va1"); err != nil {
					return err
				}
				return t.attach(ctx, "va2", "v1", "n2")
			},
			wish: wish{map[string]call{"va2": {volume: "v1", node: "id2"}}, oneVolume},
		},
		{
			Name: "drift", settings: "drift: {interval: 1s}", volumes: oneVolume, attachments: map[string]attachment{"va1": onFirst}, setup: attached,
			trigger: func(_ context.Context, t *trial) error {
				return t.backend.Set(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: t.name("v1")}}})
			},
			wish: first, last: "patch volumeattachments va1 status #1", loses: true,
		},
		{
			// The storage attaches to the former node ID and answers with an error, each time.
			Name: "node ID", settings: "retry: {initial: 5s, max: 10s}", volumes: oneVolume,
			attachments: map[string]attachment{"va1": {"v1", []string{"id1", "id9"}}},
			setup: func(ctx context.Context, t *trial) error {
				err := t.backend.Set(fakecsi.Knobs{Fail: []fakecsi.Fault{
					{Method: fakecsi.ControllerPublishVolume, Node: t.name("id1"), Code: codes.Internal, AfterEffect: true},
				}})
				if err != nil {
					return err
				}
				if err := attach(ctx, t); err != nil {
					return err
				}
				return t.waitAttachError(ctx, "va1")
			},
			trigger: func(ctx context.Context, t *trial) error { return t.register(ctx, "n1", "id9") },
			wish:    wish{map[string]call{"va1": {volume: "v1", node: "id9"}}, oneVolume},
		},
		{
			// Without its VolumeAttachment, another process finds the volume in the driver's list alone.
			Name: "dangling", settings: "drift: {interval: 1s, unexpected: detach}", volumes: oneVolume,
			attachments: map[string]attachment{"va1": onFirst}, setup: attached,
			trigger: func(ctx context.Context, t *trial) error { return t.deleteWithoutDetach(ctx, "va1") },
			wish:    none, dangling: true,
		},
		{
			Name: "deletion", volumes: oneVolume, attachments: map[string]attachment{"va1": onFirst}, setup: attached,
			trigger: func(ctx context.Context, t *trial) error {
				if err := t.deleteVolume(ctx, "v1"); err != nil {
					return err
				}
				return t.detach(ctx, "va1")
			},
		},
	}
	for ending, name := range map[Ending]string{Drained: "drain", HandedOver: "handover", TakenOver: "takeover"} {
		scenarios = append(scenarios, endWithCallsInFlight(name, ending, attached))
	}
	return scenarios
}

// endWithCallsInFlight is a scenario in which the first process ends its work with a publish and an unpublish in flight.
func endWithCallsInFlight(name string, ending Ending, attached func(context.Context, *trial) error) Scenario {
	s := Scenario{
		Name: name, Ending: ending, volumes: []string{"v1", "v2", "v3"},
		attachments: map[string]attachment{"va1": {"v1", []string{"id1"}}, "va2": {"v2", []string{"id1"}}, "va3": {"v3", []string{"id1"}}},
		setup:       attached,
		trigger: func(ctx context.Context, t *trial) error {
			if err := t.detach(ctx, "va1"); err != nil {
				return err
			}
			return t.attach(ctx, "va2", "v2", "n1")
		},
		wish: wish{map[string]call{"va2": {volume: "v2", node: "id1"}}, []string{"v1", "v2", "v3"}},
	}
	if ending == TakenOver {
		s.later = func(ctx context.Context, t *trial) error { return t.attach(ctx, "va3", "v3", "n1") }
		s.wish.attached["va3"] = call{volume: "v3", node: "id1"}
	}
	return s
}
