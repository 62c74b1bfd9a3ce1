package torture

import (
	"context"
	"fmt"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// storage is one driver and the storage system behind it. What is attached where outlives
// the driver's end.
type storage struct{ *testbed.Driver }

// restartWith crashes the driver, if it is there, and starts it with other capabilities.
func (s *storage) restartWith(ctx context.Context, capabilities []fakecsi.Capability) error {
	s.Server.Crash()
	// A call that began with the old capabilities must not meet the new ones.
	if err := s.Backend.Wait(ctx, func(b fakecsi.Books) bool { return b.InFlight.Now == 0 }); err != nil {
		return fmt.Errorf("restart driver: %w", err)
	}
	if err := s.Backend.Set(fakecsi.Knobs{Capabilities: capabilities}); err != nil {
		return err
	}
	return s.Server.Start()
}

// usualContext is the publish context of a driver that was hostile.
var usualContext = map[string]string{"devicePath": "/dev/disk/by-id/any"}

// heal takes back what faults may have left in the driver.
func (s *storage) heal(usual fakecsi.Latency) error {
	return s.Backend.Set(fakecsi.Knobs{ReleaseAll: true, ClearFaults: true, NotReady: new(false), PublishContext: usualContext,
		Latency: fakecsi.AttachLatency(usual).Latency})
}

// foreign returns what the storage has attached on its own, sorted.
func (s *storage) foreign() []fakecsi.VolumeNode {
	return s.attached(func(a fakecsi.Attachment) bool { return a.Foreign })
}

// attached returns the attachments that match, sorted.
func (s *storage) attached(is func(fakecsi.Attachment) bool) []fakecsi.VolumeNode {
	var found []fakecsi.VolumeNode
	for volume, nodes := range s.Backend.Books().Attached {
		for node, a := range nodes {
			if is(a) {
				found = append(found, fakecsi.VolumeNode{Volume: volume, Node: node})
			}
		}
	}
	slices.SortFunc(found, func(x, y fakecsi.VolumeNode) int {
		return slices.Compare([]string{x.Volume, x.Node}, []string{y.Volume, y.Node})
	})
	return found
}
