package tests

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// BenchmarkAttachAndDetach is one VolumeAttachment from its creation to its end, with an API server and a driver in
// memory that take no time.
func BenchmarkAttachAndDetach(b *testing.B) {
	backend, err := fakecsi.New(fakecsi.Options{Name: virtualDriver})
	if err != nil {
		b.Fatal(err)
	}
	kube := fakekube.New().Client()
	connect := func(context.Context, registry.Driver) (hubdriver.Session, error) {
		return newBackendSession(backend), nil
	}
	h, err := hub.New(hub.Options{Kube: kube, Connect: connect})
	if err != nil {
		b.Fatal(err)
	}
	cluster, updates := testbed.NewCluster(kube), make(chan registry.Snapshot, 1)
	if err := cluster.Create(b.Context(), testbed.CSINode{Node: "n", Drivers: map[string]string{virtualDriver: "id-n"}}, testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: "v"}); err != nil {
		b.Fatal(err)
	}
	updates <- registry.Snapshot{virtualDriver: {Name: virtualDriver, Endpoint: "tcp://127.0.0.1:9", Settings: registry.DefaultSettings()}}
	ctx, cancel := context.WithCancel(klog.NewContext(b.Context(), logr.Discard()))
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx, updates) }()
	defer func() { cancel(); <-ended }()
	watcher, err := kube.StorageV1().VolumeAttachments().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer watcher.Stop()
	until := func(holds func(watch.Event) bool) {
		for event := range watcher.ResultChan() {
			if holds(event) {
				return
			}
		}
		b.Fatal("the watch has ended")
	}
	va := testbed.VolumeAttachment{Name: "v-n", Driver: virtualDriver, Node: "n", PersistentVolume: "v"}
	b.ReportAllocs()
	for b.Loop() {
		if err := cluster.Create(ctx, va); err != nil {
			b.Fatal(err)
		}
		until(func(e watch.Event) bool {
			va, ok := e.Object.(*storagev1.VolumeAttachment)
			return ok && va.Status.Attached
		})
		if err := cluster.Delete(ctx, va); err != nil {
			b.Fatal(err)
		}
		until(func(e watch.Event) bool { return e.Type == watch.Deleted })
	}
}
