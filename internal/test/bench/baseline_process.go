package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/bench/baseline"
)

// BaselineCommand is the subcommand that runs the baseline. The baseline is a process of
// its own, so that the kernel measures it apart from this program. Its one argument is for
// RunBaseline.
const BaselineCommand = "baseline"

// baselineReady is what the baseline prints when it is ready.
const baselineReady = "baseline is ready"

// baselineTask is the argument of RunBaseline.
type baselineTask struct {
	Kubeconfig   string            `json:"kubeconfig"`
	Drivers      map[string]string `json:"drivers"`      // endpoints by name
	HTTPEndpoint string            `json:"httpEndpoint"` // for its metrics
	Fresh        bool              `json:"fresh"`        // no PersistentVolume has a finalizer yet
	Shared       bool              `json:"shared"`       // all volumes are shared between nodes
}

// RunBaseline runs the baseline and blocks until ctx ends or something fails.
func RunBaseline(ctx context.Context, argument string, out io.Writer) error {
	var task baselineTask
	if err := json.Unmarshal([]byte(argument), &task); err != nil {
		return fmt.Errorf("read the baseline's argument: %w", err)
	}
	client, err := baselineClient(task.Kubeconfig)
	if err != nil {
		return err
	}
	f, err := baseline.New(baseline.Options{Kube: client, Drivers: task.Drivers, Fresh: task.Fresh, Shared: task.Shared})
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", task.HTTPEndpoint)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w", err)
	}
	server := &http.Server{Handler: promhttp.Handler(), ReadHeaderTimeout: 10 * time.Second}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve metrics: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		defer server.Close()
		return f.Run(ctx, func() { fmt.Fprintln(out, baselineReady) })
	})
	return group.Wait()
}

// baselineClient makes a client like the hub's: protobuf, without a rate limit.
func baselineClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API: %w", err)
	}
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.UserAgent = "bench-baseline"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the Kubernetes client: %w", err)
	}
	return client, nil
}
