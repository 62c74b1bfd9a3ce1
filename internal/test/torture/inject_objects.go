package torture

import (
	"context"
	"fmt"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// beginObject deletes an object; its undo makes the object again.
func (i *injector) beginObject(ctx context.Context, f Fault) (undo, error) {
	w := i.world
	var o testbed.Object
	switch f.Kind {
	case VolumeVanished:
		v := i.volume(f)
		return v.create, v.vanish(ctx)
	case NodeGone:
		o = testbed.Node{Name: w.Nodes[f.Target]}
	case CSINodeGone:
		o = w.CSINode(w.Nodes[f.Target])
	case SecretGone:
		o = secret(f.Target)
	default:
		return nil, fmt.Errorf("nobody knows how to do %s", f.Kind)
	}
	return func(ctx context.Context) error { return w.Cluster.Ensure(ctx, o) }, w.remove(ctx, o)
}

// broken are contents of drivers.yaml with which no hub can start.
var broken = []string{
	"",
	"apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\ndrivers:\n  - {name: chaos-d0, endpoint: \"unix:///tm",
	"apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\ndrivers: []\nsurprise: true\n",
	"\x00\x01\x02",
}

// beginConfig changes drivers.yaml.
func (i *injector) beginConfig(f Fault) (undo, error) {
	file, random := i.world.config, f.random()
	mode := func(mode string) error { return file.set(f.Target, func(s *settings) { s.mode = mode }) }
	restore := func(context.Context) error { return file.restore() }
	switch f.Kind {
	case ConfigRewritten:
		return nothing, file.set(f.Target, func(s *settings) {
			s.workers = 1 + random.IntN(20)
			s.timeout = fmt.Sprintf("%dms", 700+random.IntN(1300))
		})
	case ConfigPaused:
		return func(context.Context) error { return mode("active") }, mode([]string{"paused", "observe"}[random.IntN(2)])
	case ConfigBroken:
		return restore, file.replace(broken[random.IntN(len(broken))], true)
	}
	return restore, file.replace(testbed.ConfigHead+"drivers: []\n", false)
}
