package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// heartbeatEvery is the time between two updates of each node.
const heartbeatEvery = 2 * time.Second

// heartbeats updates each node again and again until ctx ends, as a kubelet does. The attach-detach controller
// takes a volume whose attach has failed for mounted until it sees an update of its node: without
// updates it would detach the volume only after six minutes. An error is skipped: the next update
// does as well.
func (b *sandbox) heartbeats(ctx context.Context) {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	nodes := b.Plane.Clientset().CoreV1().Nodes()
	for n := 1; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"sandbox/heartbeat":"%d"}}}`, n)
		for _, node := range b.workload.nodes {
			_, _ = nodes.Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}
}
