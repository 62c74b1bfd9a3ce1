package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// stopGrace is how long a component may take to end on SIGTERM before it is
// killed. kube-apiserver needs about one second to end its watches.
const stopGrace = 5 * time.Second

// run starts all components, reports ready, and blocks until ctx ends (nil) or
// a component does (its error). Nothing runs any more when it has returned.
func run(ctx context.Context, opts options) error {
	st, err := openState(opts.Dir)
	if err != nil {
		return err
	}
	defer st.close()
	if err := st.checkPorts(opts.ControllerManager); err != nil {
		return err
	}
	etcd, err := startEtcd(st)
	if err != nil {
		return err
	}
	// Last in, first out: who uses a component ends before it.
	defer etcd.Close()

	died := make(chan error, 3)
	go func() {
		if err, ok := <-etcd.Err(); ok {
			died <- fmt.Errorf("etcd ended: %w (log: %s)", err, st.path("etcd.log"))
		}
	}()

	api, err := startChild(st, apiServerRole, apiServerArgs(st, opts), died)
	if err != nil {
		return err
	}
	defer api.stop(stopGrace)
	if err := waitReady(ctx, api, died, opts.ReadyTimeout, apiServerProbes(st)...); err != nil {
		return ignoreCancel(ctx, err)
	}
	if opts.ControllerManager {
		kcm, err := startChild(st, controllerManagerRole, controllerManagerArgs(st, opts), died)
		if err != nil {
			return err
		}
		defer kcm.stop(stopGrace)
		if err := waitReady(ctx, kcm, died, opts.ReadyTimeout, controllerManagerProbe(st)); err != nil {
			return ignoreCancel(ctx, err)
		}
	}

	fmt.Fprintf(opts.Out, "ready kubeconfig=%s server=%s\n", st.path("kubeconfig"), st.serverURL())
	select {
	case <-ctx.Done():
		return nil
	case err := <-died:
		return err
	}
}

// ignoreCancel turns the error of a start that was cut short by a signal into
// nil: being asked to stop is no failure.
func ignoreCancel(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
