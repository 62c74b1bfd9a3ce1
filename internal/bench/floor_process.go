package bench

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

	"github.com/csi-attach-hub/csi-attach-hub/internal/bench/floor"
)

// FloorCommand is the subcommand of testbed that is the floor: a process of its own, so
// that what it takes can be told from what this program does. Its one argument is for
// RunFloor.
const FloorCommand = "bench-floor"

// floorReady is what the floor prints when it is ready.
const floorReady = "floor is ready"

// floorTask says to a process what floor it is.
type floorTask struct {
	Kubeconfig   string            `json:"kubeconfig"`
	Drivers      map[string]string `json:"drivers"`      // endpoints by name
	HTTPEndpoint string            `json:"httpEndpoint"` // for its metrics
	Fresh        bool              `json:"fresh"`        // no PersistentVolume has a finalizer yet
}

// RunFloor is the process of the floor: it blocks until ctx ends.
func RunFloor(ctx context.Context, argument string, out io.Writer) error {
	var task floorTask
	if err := json.Unmarshal([]byte(argument), &task); err != nil {
		return fmt.Errorf("read the floor's argument: %w", err)
	}
	client, err := floorClient(task.Kubeconfig)
	if err != nil {
		return err
	}
	f, err := floor.New(floor.Options{Kube: client, Drivers: task.Drivers, Fresh: task.Fresh})
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
		return f.Run(ctx, func() { fmt.Fprintln(out, floorReady) })
	})
	return group.Wait()
}

// floorClient speaks to the API server as the hub does: protobuf, without a rate limit.
func floorClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API: %w", err)
	}
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.UserAgent = "bench-floor"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the Kubernetes client: %w", err)
	}
	return client, nil
}
