package main

import (
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	sidecarName      = "csi-attacher"
	tunedSidecarName = "csi-attacher tuned"
)

// tuned are flags of csi-attacher that lift its limits.
var tuned = []string{"--kube-api-qps=1000", "--kube-api-burst=1000", "--worker-threads=100", "--timeout=2m"}

// sidecarCompetitor is one csi-attacher for each driver.
func sidecarCompetitor(name string, flags []string) competitor {
	return competitor{name: name, bursts: 1, start: func(ctx context.Context, s *stage) (*attacher, error) {
		kubeconfig, err := s.kubeconfig(ctx, metav1.NamespaceDefault, otherAccount)
		if err != nil {
			return &attacher{name: name}, err
		}
		return startSidecars(ctx, s, sidecarOptions{name: name, flags: flags, kubeconfig: kubeconfig})
	}}
}

// sidecarOptions say how to run csi-attacher.
type sidecarOptions struct {
	name       string
	flags      []string
	kubeconfig string
	replica    int // counts from 0
}

// startSidecars starts one csi-attacher for each driver and blocks until they are ready. The first replica of a case with
// replicas holds the leases then.
func startSidecars(ctx context.Context, s *stage, o sidecarOptions) (*attacher, error) {
	a := &attacher{name: o.name, sidecars: true}
	a.another = func(ctx context.Context) (*attacher, error) {
		o.replica++
		return startSidecars(ctx, s, o)
	}
	for i, d := range s.Drivers {
		address, err := testbed.FreeAddress(ctx)
		if err != nil {
			return a, err
		}
		command := []string{s.opts.Sidecar, "--csi-address", d.Socket, "--kubeconfig", o.kubeconfig, "--http-endpoint", address}
		command = append(command, o.flags...)
		if s.c.replicas {
			command = onHost(replicaHost(o.replica), append(command, "--leader-election", "--leader-election-namespace="+metav1.NamespaceDefault))
		}
		p, err := testbed.StartProcess(ctx, testbed.ProcessOptions{
			Name: fmt.Sprintf("%s of %s", o.name, d.Name), Path: command[0], Args: command[1:],
			LogPath: s.file(fmt.Sprintf("csi-attacher-%03d.log", i)),
		})
		if err != nil {
			return a, err
		}
		a.add(p, "http://"+address)
	}
	// They serve metrics once connected. They may still fill their caches then.
	err := a.wait(ctx, func(url string) error {
		_, err := testbed.Metrics(ctx, url+"/metrics")
		return err
	})
	if err != nil || !s.c.replicas || o.replica > 0 {
		return a, err
	}
	return a, a.whileRuns(ctx, func(ctx context.Context) error { return s.waitForHolder(ctx, replicaHost(0)) })
}

func replicaHost(replica int) string { return fmt.Sprintf("replica-%d", replica) }

// onHost returns a command that runs a command where the host has another name: csi-attacher takes the name as its identity, and two
// with one identity would both lead. It needs root, or a kernel that lets users make namespaces.
func onHost(name string, command []string) []string {
	unshare := []string{"unshare", "--uts"}
	if os.Geteuid() != 0 {
		unshare = append(unshare, "--map-root-user")
	}
	return append(append(unshare, "sh", "-c", `hostname "$0" && exec "$@"`, name), command...)
}
