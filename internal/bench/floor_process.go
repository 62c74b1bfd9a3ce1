package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-attach-hub/csi-attach-hub/internal/bench/floor"
)

// FloorOptions are those of a floor that is a process.
type FloorOptions struct {
	Kubeconfig   string
	Drivers      string // file, see FloorCommand
	HTTPEndpoint string // for its metrics
	Fresh        bool   // no PersistentVolume has a finalizer yet
	Out          io.Writer
}

// RunFloor is the process of the floor: it blocks until ctx ends.
func RunFloor(ctx context.Context, o FloorOptions) error {
	client, err := floorClient(o.Kubeconfig)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(o.Drivers)
	if err != nil {
		return fmt.Errorf("read endpoints: %w", err)
	}
	var drivers map[string]string
	if err := json.Unmarshal(data, &drivers); err != nil {
		return fmt.Errorf("read endpoints: %w", err)
	}
	f, err := floor.New(floor.Options{Kube: client, Drivers: drivers, Fresh: o.Fresh})
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.HTTPEndpoint)
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
		return f.Run(ctx, func() { fmt.Fprintf(o.Out, "%sis ready\n", FloorReady) })
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
