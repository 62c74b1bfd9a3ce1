package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// storage is one driver and the storage system behind it. What is attached where outlives
// the driver's end.
type storage struct {
	driver  string // its name
	socket  string
	backend *fakecsi.Backend
	server  *fakecsi.Server
}

// usual is how long calls take when nothing is wrong.
var usual = fakecsi.Latency{Base: 10 * time.Millisecond, Jitter: 80 * time.Millisecond}

// newStorage starts a driver. The caller must crash it in the end.
func newStorage(driver, socket string) (*storage, error) {
	backend, err := fakecsi.New(fakecsi.Options{Name: driver})
	if err != nil {
		return nil, err
	}
	server, err := fakecsi.NewServer(fakecsi.ServerOptions{Backend: backend, Endpoint: "unix://" + socket})
	if err != nil {
		return nil, err
	}
	s := &storage{driver: driver, socket: socket, backend: backend, server: server}
	if err := backend.Set(latency(usual)); err != nil {
		return nil, err
	}
	return s, server.Start()
}

// latency makes all calls that attach and detach so slow.
func latency(l fakecsi.Latency) fakecsi.Knobs {
	return fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{fakecsi.ControllerPublishVolume: l, fakecsi.ControllerUnpublishVolume: l}}
}

// restartWith crashes the driver, if it is there, and starts it with other capabilities.
func (s *storage) restartWith(ctx context.Context, capabilities []fakecsi.Capability) error {
	s.server.Crash()
	// A call that began with the old ones must not meet the new ones.
	if err := s.backend.Wait(ctx, func(b fakecsi.Books) bool { return b.InFlight.Now == 0 }); err != nil {
		return fmt.Errorf("restart driver: %w", err)
	}
	if err := s.backend.Set(fakecsi.Knobs{Capabilities: capabilities}); err != nil {
		return err
	}
	return s.server.Start()
}

// heal takes all back that may still be wrong with the driver.
func (s *storage) heal() error {
	return s.backend.Set(fakecsi.Knobs{ReleaseAll: true, ClearFaults: true, NotReady: new(false), Latency: latency(usual).Latency})
}

// foreign returns what the storage has attached on its own, in order.
func (s *storage) foreign() []fakecsi.VolumeNode {
	return s.attached(func(a fakecsi.Attachment) bool { return a.Foreign })
}

// attached returns what is attached where and how is as asked, in order.
func (s *storage) attached(is func(fakecsi.Attachment) bool) []fakecsi.VolumeNode {
	var found []fakecsi.VolumeNode
	for volume, nodes := range s.backend.Books().Attached {
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

// callsOf are the calls for a volume as lines of a journal.
func callsOf(b fakecsi.Books, volume string) []line {
	var lines []line
	for _, c := range slices.Concat(b.Calls, b.Running) {
		if c.Volume != volume {
			continue
		}
		end := "still running"
		if !c.End.IsZero() {
			end = fmt.Sprintf("%s after %v, changed %v, abandoned %v %s", c.Code, c.End.Sub(c.Start).Round(time.Millisecond), c.Changed, c.Abandoned, c.Error)
		}
		lines = append(lines, line{at: c.Start, about: volume, text: fmt.Sprintf("call %d %s on %s: %s", c.ID, c.Method, c.Node, end)})
	}
	return lines
}
