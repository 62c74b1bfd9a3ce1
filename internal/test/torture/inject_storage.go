package torture

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// otherCapabilities are those with which a driver may come back. Those that can attach keep
// SINGLE_NODE_MULTI_WRITER: see the package comment.
var otherCapabilities = [][]fakecsi.Capability{
	{}, // not even a controller
	{fakecsi.ControllerService, fakecsi.ListVolumesRPC, fakecsi.ListVolumesPublishedNodes},
	{fakecsi.ControllerService, fakecsi.PublishUnpublishVolume, fakecsi.SingleNodeMultiWriter},
	{fakecsi.ControllerService, fakecsi.PublishUnpublishVolume, fakecsi.SingleNodeMultiWriter, fakecsi.ListVolumesRPC},
}

var (
	attachMethods = []fakecsi.Method{fakecsi.ControllerPublishVolume, fakecsi.ControllerUnpublishVolume}
	calledMethods = append(attachMethods[:2:2], fakecsi.ListVolumes, fakecsi.Probe, fakecsi.ControllerGetCapabilities)
)

// slow makes some calls take longer than their timeout.
var slow = fakecsi.Latency{Base: 300 * time.Millisecond, Jitter: 2 * time.Second}

func (i *injector) beginStorage(ctx context.Context, f Fault) (undo, error) {
	s, random := i.world.storages[f.Target], f.random()
	set := func(now, then fakecsi.Knobs) (undo, error) {
		return func(context.Context) error { return s.Backend.Set(then) }, s.Backend.Set(now)
	}
	switch f.Kind {
	case DriverCrash:
		s.Server.Crash()
		return func(context.Context) error { return s.Server.Start() }, nil
	case DriverCapabilities:
		other := otherCapabilities[random.IntN(len(otherCapabilities))]
		h := i.world.history
		h.announces(s.Name, slices.Contains(other, fakecsi.PublishUnpublishVolume))
		return func(ctx context.Context) error {
			defer h.announces(s.Name, true)
			return s.restartWith(ctx, fakecsi.DefaultCapabilities())
		}, s.restartWith(ctx, other)
	case DriverHang:
		h := []fakecsi.Hang{{Method: calledMethods[random.IntN(len(calledMethods))]}}
		return set(fakecsi.Knobs{Hang: h}, fakecsi.Knobs{Release: h})
	case DriverLate:
		h := []fakecsi.Hang{{Method: attachMethods[random.IntN(2)], AfterEffect: true}}
		return set(fakecsi.Knobs{Hang: h}, fakecsi.Knobs{Release: h})
	case DriverSlow:
		return set(fakecsi.AttachLatency(slow), fakecsi.AttachLatency(i.world.load.latency))
	case DriverNotReady:
		return set(fakecsi.Knobs{NotReady: new(true)}, fakecsi.Knobs{NotReady: new(false)})
	case DriverHostile:
		return set(hostile(random), fakecsi.Knobs{PublishContext: usualContext, ClearFaults: true})
	case DriverError:
		code := codes.Code(1 + random.IntN(int(codes.Unauthenticated)))
		method := attachMethods[random.IntN(2)]
		if random.IntN(4) == 0 {
			method = calledMethods[random.IntN(len(calledMethods))]
		}
		i.mu.Lock()
		i.codes[code.String()]++
		i.mu.Unlock()
		return nothing, s.Backend.Set(fakecsi.Knobs{Fail: []fakecsi.Fault{{
			Method: method, Code: code, Count: 1 + random.IntN(6), AfterEffect: random.IntN(2) == 0}}})
	case StorageLost:
		there := s.attached(func(fakecsi.Attachment) bool { return true })
		if len(there) == 0 {
			return nil, nil
		}
		lost := there[random.IntN(len(there))]
		i.world.history.add(lost.Volume, "storage loses it on %s", lost.Node)
		return nothing, s.Backend.Set(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{lost}})
	}
	return i.gain(s, f)
}

// hostile returns knobs for answers that are as large as the hub takes them, or larger.
func hostile(random *rand.Rand) fakecsi.Knobs {
	contexts := []int{250 << 10, 1<<20 - 1<<10, 15 << 20} // taken, read and refused, not read
	texts := []int{120 << 10, 5 << 20}
	text := strings.Repeat("x", texts[random.IntN(len(texts))])
	k := fakecsi.Knobs{PublishContext: map[string]string{"blob": strings.Repeat("x", contexts[random.IntN(len(contexts))])}}
	for _, method := range []fakecsi.Method{fakecsi.ControllerUnpublishVolume, fakecsi.ListVolumes, fakecsi.Probe} {
		k.Fail = append(k.Fail, fakecsi.Fault{Method: method, Code: codes.Internal, Message: text})
	}
	return k
}

// gain lets the storage attach, without a call, a volume that is attached nowhere.
func (i *injector) gain(s *storage, f Fault) (undo, error) {
	random := f.random()
	books := s.Backend.Books()
	var free []string
	for _, v := range i.world.all {
		if v.storage == s && len(books.Attached[v.name]) == 0 {
			free = append(free, v.name)
		}
	}
	if len(free) == 0 {
		return nil, nil
	}
	gained := fakecsi.VolumeNode{Volume: free[random.IntN(len(free))], Node: testbed.NodeID(i.world.Nodes[random.IntN(nodeCount)])}
	i.world.history.add(gained.Volume, "storage attaches it to %s on its own", gained.Node)
	return func(context.Context) error { return i.world.loseForeign(s, gained) },
		s.Backend.Set(fakecsi.Knobs{GainAttachments: []fakecsi.VolumeNode{gained}})
}

// loseForeign undoes what a storage has attached on its own, unless a call has asked for it since.
func (w *world) loseForeign(s *storage, gained fakecsi.VolumeNode) error {
	if !slices.Contains(s.foreign(), gained) {
		return nil
	}
	w.history.add(gained.Volume, "storage lets go of it on %s", gained.Node)
	return s.Backend.Set(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{gained}})
}

// loseAllForeign undoes everything that storages have attached on their own.
func (w *world) loseAllForeign() error {
	for _, s := range w.storages {
		for _, a := range s.foreign() {
			if err := w.loseForeign(s, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// loseLast lets each storage lose one attachment while all is quiet: the hub can notice it only in the
// driver's list.
func (i *injector) loseLast(ctx context.Context, s Stretch) error {
	for n := range i.world.storages {
		f := Fault{Kind: StorageLost, Target: n, Draw: uint64(s.Number)}
		if err := i.carryOut(ctx, f, nil); err != nil {
			return err
		}
	}
	return nil
}
