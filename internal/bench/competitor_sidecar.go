package bench

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	sidecarName      = "csi-attacher"
	tunedSidecarName = "csi-attacher tuned"
	// readyEvery is the time between two questions whether a sidecar is ready; readyFor bounds all.
	readyEvery = 20 * time.Millisecond
	readyFor   = 2 * time.Minute
)

// tuned are flags of csi-attacher that lift its limits.
var tuned = []string{"--kube-api-qps=1000", "--kube-api-burst=1000", "--worker-threads=100", "--timeout=2m"}

// sidecarCompetitor is one csi-attacher for each driver.
func sidecarCompetitor(name string, flags []string) competitor {
	return competitor{name: name, bursts: 1, start: func(ctx context.Context, s *stage) (*attacher, error) {
		a := &attacher{name: name, killed: true}
		kubeconfig, err := s.kubeconfig(ctx, metav1.NamespaceDefault, otherAccount)
		if err != nil {
			return a, err
		}
		for i, d := range s.Drivers {
			address, err := testbed.FreeAddress(ctx)
			if err != nil {
				return a, err
			}
			args := []string{"--csi-address", d.Socket, "--kubeconfig", kubeconfig, "--http-endpoint", address}
			p, err := testbed.StartProcess(ctx, testbed.ProcessOptions{
				Name: fmt.Sprintf("%s of %s", name, d.Name), Path: s.opts.Sidecar, Args: append(args, flags...),
				LogPath: s.file(fmt.Sprintf("csi-attacher-%03d.log", i)),
			})
			if err != nil {
				return a, err
			}
			a.add(p, "http://"+address)
		}
		return a, waitSidecars(ctx, a)
	}}
}

// waitSidecars blocks until all sidecars serve their metrics, which they do once connected. They may
// still fill their caches then.
func waitSidecars(ctx context.Context, a *attacher) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyFor, fmt.Errorf("not ready %v after their start", readyFor))
	defer cancel()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	return a.whileRuns(ctx, func(ctx context.Context) error {
		for _, url := range a.urls {
			for {
				_, err := testbed.Metrics(ctx, url+"/metrics")
				if err == nil {
					break
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return fmt.Errorf("wait for %s: %w: %w", a.name, context.Cause(ctx), err)
				}
			}
		}
		return nil
	})
}
