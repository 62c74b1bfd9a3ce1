package csiclient

import (
	"context"
	"fmt"

	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// AskName asks the driver at an endpoint for its name, without TLS and over a connection of its own. It blocks for at most
// 20 seconds, or until ctx ends. The name is what the driver answers, of at most 64 KiB. The error of a call has no
// text of the driver: nobody knows yet which secrets it may repeat.
func AskName(ctx context.Context, endpoint registry.Endpoint) (string, error) {
	client, _, err := dial(ctx, registry.Driver{Endpoint: endpoint})
	if err != nil {
		return "", err
	}
	defer client.Close()
	name, err := ask(ctx, client, rpc.GetDriverName)
	if s, ofCall := status.FromError(err); err != nil && ofCall {
		return "", fmt.Errorf("ask the driver at %s for its name: GetPluginInfo failed with %s", endpoint, s.Code())
	}
	return name, err
}
