package crash

import (
	"context"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	publish   = string(fakecsi.ControllerPublishVolume)
	unpublish = string(fakecsi.ControllerUnpublishVolume)
)

// suffix ends the names of the drivers. The key of the case is before it.
const suffix = ".crash"

// keyOf splits the name of a case's object, such as r1-b2-7-va1, into key and rest.
func keyOf(name string) (key, own string) {
	parts := strings.SplitN(name, "-", 4)
	if len(parts) < 4 {
		return "", ""
	}
	return strings.Join(parts[:3], "-"), parts[3]
}

// driverOfLease returns the key of the case whose driver has that lease.
func driverOfLease(name string) (key string, ok bool) {
	prefix, end, _ := strings.Cut(registry.LeaseName("0"+suffix), "0")
	rest, hasPrefix := strings.CutPrefix(name, prefix)
	key, hasEnd := strings.CutSuffix(rest, end)
	return key, hasPrefix && hasEnd
}

// serveDriver serves the storage of a case to one process, on a socket of its own.
func serveDriver(b *fakecsi.Backend, dir, key string, t *tape) (*testbed.Driver, error) {
	d := &testbed.Driver{Name: key + suffix, Socket: filepath.Join(dir, key), Backend: b}
	var err error
	d.Server, err = fakecsi.NewServer(fakecsi.ServerOptions{Backend: b, Endpoint: d.Endpoint(), Intercept: t.intercept})
	if err != nil {
		return nil, err
	}
	return d, d.Server.Start()
}

// intercept records publishes and unpublishes.
func (t *tape) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	target, ok := req.(interface {
		GetVolumeId() string
		GetNodeId() string
	})
	method := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
	if !ok || method != publish && method != unpublish {
		return handle(ctx, req)
	}
	c := call{method, target.GetVolumeId(), target.GetNodeId()}
	_, volume := keyOf(c.volume)
	_, node := keyOf(c.node)
	lost := t.pass(ctx, "call "+method+" "+volume+" "+node, true, func() {
		if answer, err = handle(context.WithoutCancel(ctx), req); err == nil {
			t.succeeded(c)
		}
	}, func() {})
	if lost != nil {
		return nil, lost
	}
	return answer, err
}
