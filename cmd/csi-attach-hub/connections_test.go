package main

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

func TestAThousandRequestsAtOnceTakeOneConnection(t *testing.T) {
	config := forProtobuf(testbed.Shared(t).RESTConfig())
	var connections atomic.Int32
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		connections.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	kube, err := newKubeClient(config)
	if err != nil {
		t.Fatal(err)
	}
	get := func() error {
		_, err := kube.StorageV1().CSIDrivers().Get(t.Context(), "bounded.example.com", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	watch, err := kube.StorageV1().CSIDrivers().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	var requests errgroup.Group
	for range 1000 {
		requests.Go(get)
	}
	if err := requests.Wait(); err != nil {
		t.Error(err)
	}
	if got := connections.Load(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}
