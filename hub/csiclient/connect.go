package csiclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// callTimeout bounds each call that verifies a driver: some drivers ask their cloud
// before they answer (external-attacher PR 561).
const callTimeout = 10 * time.Second

// Connect dials the endpoint of a driver once and verifies the driver behind it. It
// blocks until the Session is ready, a step has failed, or ctx ends. It returns ErrNotReady, a
// *NameError, an error that names the side which must change its TLS or its address, or
// the gRPC status of the call that failed. It reads the files of the driver's TLS each time.
// The texts of the driver in these errors are sanitized; they have any length, and may repeat secrets
// that the driver knows. count, which may be nil, is called for each call of the Session, also for the calls that
// verify the driver. The caller owns the Session and closes it.
func Connect(ctx context.Context, d registry.Driver, count CallFunc) (*Session, error) {
	return connectAndFollow(ctx, d, count, time.Tick(tlsfiles.Interval))
}

// connectAndFollow is Connect. Tests replace ticks, which say when the TLS files are read.
func connectAndFollow(ctx context.Context, d registry.Driver, count CallFunc, ticks <-chan time.Time) (*Session, error) {
	if err := d.CheckTransport(); err != nil {
		return nil, err
	}
	// First: an error on this side must not look like an error of the driver.
	material, err := loadMaterial(d.TLS)
	if err != nil {
		return nil, err
	}
	s, err := dial(ctx, d, material, count)
	if err != nil {
		return nil, err
	}
	if s.info, err = verify(ctx, s.conn, d.Name); err != nil {
		s.Close()
		return nil, err
	}
	s.follow(s.followState)
	if material != nil {
		s.follow(func() { s.followFiles(d, material, ticks) })
	}
	return s, nil
}

// ErrNotReady means that the driver answered its Probe with ready=false.
var ErrNotReady = errors.New("driver is not ready (Probe)")

// NameError means that another driver than the expected one answers at the endpoint.
type NameError struct{ Want, Got string }

// Error names both drivers.
func (e *NameError) Error() string {
	return fmt.Sprintf("the driver behind this endpoint reports the name %q, not %q: correct the name or the endpoint", e.Got, e.Want)
}

// AskName asks the driver at an endpoint for its name, without TLS and over a connection of its own. It blocks for at most
// 20 seconds, or until ctx ends. The name is what the driver answers, of at most 64 KiB. The error of a call has no
// text of the driver: nobody knows yet which secrets it may repeat.
func AskName(ctx context.Context, endpoint registry.Endpoint) (string, error) {
	s, err := dial(ctx, registry.Driver{Endpoint: endpoint}, nil, nil)
	if err != nil {
		return "", err
	}
	defer s.Close()
	name, err := ask(ctx, s.conn, rpc.GetDriverName)
	if code, ofCall := status.FromError(err); err != nil && ofCall {
		return "", fmt.Errorf("ask the driver at %s for its name: GetPluginInfo failed with %s", endpoint, code.Code())
	}
	return name, err
}

// verify asks the driver whether it is ready, who it is and what it can do.
func verify(ctx context.Context, conn *grpc.ClientConn, name string) (Info, error) {
	ready, err := ask(ctx, conn, rpc.Probe)
	if err != nil {
		return Info{}, fmt.Errorf("probe driver: %w", err)
	}
	if !ready {
		return Info{}, ErrNotReady
	}
	plugin, err := ask(ctx, conn, pluginInfo)
	if err != nil {
		return Info{}, fmt.Errorf("get plugin info: %w", err)
	}
	if plugin.GetName() != name {
		return Info{}, &NameError{Want: name, Got: plugin.GetName()}
	}
	capabilities, err := readCapabilities(ctx, conn)
	if err != nil {
		return Info{}, err
	}
	return Info{Name: name, Version: Sanitize(plugin.GetVendorVersion()), Capabilities: capabilities}, nil
}

func pluginInfo(ctx context.Context, conn *grpc.ClientConn) (*csi.GetPluginInfoResponse, error) {
	return csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
}

func readCapabilities(ctx context.Context, conn *grpc.ClientConn) (Capabilities, error) {
	plugin, err := ask(ctx, conn, rpc.GetPluginCapabilities)
	if err != nil {
		return Capabilities{}, fmt.Errorf("get plugin capabilities: %w", err)
	}
	if !plugin[csi.PluginCapability_Service_CONTROLLER_SERVICE] {
		return Capabilities{}, nil
	}
	controller, err := ask(ctx, conn, rpc.GetControllerCapabilities)
	if err != nil {
		return Capabilities{}, fmt.Errorf("get controller capabilities: %w", err)
	}
	return Capabilities{
		ControllerService:     true,
		PublishUnpublish:      controller[csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME],
		PublishReadonly:       controller[csi.ControllerServiceCapability_RPC_PUBLISH_READONLY],
		SingleNodeMultiWriter: controller[csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER],
		ListPublishedNodes: controller[csi.ControllerServiceCapability_RPC_LIST_VOLUMES] &&
			controller[csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES],
	}, nil
}

// ask makes one of the verifying calls, with a deadline of its own. Its error is sanitized.
func ask[T any](ctx context.Context, conn *grpc.ClientConn, call func(context.Context, *grpc.ClientConn) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := call(ctx, conn)
	return answer, sanitizeError(err)
}
