package main

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const holdFinalizer = "test.example.com/attached"

// answerAttachments does what an attacher does to the objects, until the test ends, and
// counts how often there were two VolumeAttachments of a volume at once.
func answerAttachments(t *testing.T, ctx context.Context, client kubernetes.Interface) (twice *atomic.Int32) {
	t.Helper()
	twice = &atomic.Int32{}
	var mu sync.Mutex
	nodes := map[string]types.UID{} // by volume
	var writes sync.WaitGroup
	patch := func(name, patch string, subresources ...string) {
		writes.Go(func() {
			// An error says that it is gone, or that the test is over.
			_, _ = client.StorageV1().VolumeAttachments().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		})
	}
	w, err := testbed.WatchVolumeAttachments(ctx, client, func(was, now *storagev1.VolumeAttachment) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case now == nil:
			delete(nodes, *was.Spec.Source.PersistentVolumeName)
		case now.DeletionTimestamp != nil:
			patch(now.Name, `{"metadata":{"finalizers":null}}`)
		case len(now.Finalizers) == 0:
			volume := *now.Spec.Source.PersistentVolumeName
			if other := nodes[volume]; other != "" && other != now.UID {
				twice.Add(1)
			}
			nodes[volume] = now.UID
			patch(now.Name, `{"metadata":{"finalizers":["`+holdFinalizer+`"]}}`)
		case !now.Status.Attached:
			patch(now.Name, `{"status":{"attached":true}}`, "status")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); writes.Wait() })
	return twice
}

// flaky fails every fourth write: half of those were done all the same.
type flaky struct {
	next   http.RoundTripper
	writes *atomic.Int32
}

func (f flaky) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return f.next.RoundTrip(r)
	}
	n := f.writes.Add(1)
	if n%8 == 3 {
		return nil, errors.New("the connection was refused")
	}
	response, err := f.next.RoundTrip(r)
	if n%8 == 7 && err == nil {
		response.Body.Close()
		return nil, errors.New("the connection was lost")
	}
	return response, err
}

// churnThroughErrors starts a load whose client fails now and then.
func churnThroughErrors(t *testing.T, prefix string) (context.Context, *churn, *testbed.Watcher[*storagev1.VolumeAttachment], *atomic.Int32) {
	t.Helper()
	plane := testbed.Shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	twice := answerAttachments(t, ctx, plane.Clientset())
	watcher, err := testbed.WatchVolumeAttachments(ctx, plane.Clientset(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Close)
	config := plane.RESTConfig()
	writes := &atomic.Int32{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return flaky{next, writes} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c := startChurn(ctx, churnOptions{Cluster: testbed.NewCluster(client), Watcher: watcher, Driver: prefix, Volumes: 5,
		Nodes: []string{prefix + "-n1", prefix + "-n2", prefix + "-n3"}, Prefix: prefix, Seed: 7})
	return ctx, c, watcher, twice
}

func ofDriver(all []*storagev1.VolumeAttachment, driver string) []*storagev1.VolumeAttachment {
	return slices.DeleteFunc(slices.Clone(all), func(va *storagev1.VolumeAttachment) bool { return va.Spec.Attacher != driver })
}

func TestChurnGoesOnThroughErrorsWithOneVolumeAttachmentOfAVolumeAtATimeAndLeavesNone(t *testing.T) {
	ctx, c, watcher, twice := churnThroughErrors(t, "churn-stop")
	for range 2 {
		if err := c.WaitCycles(ctx, 20); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if got := c.Cycles(); got < 40 {
		t.Errorf("%d cycles, want 40 or more", got)
	}
	err := watcher.WaitFor(ctx, "none left", func(all []*storagev1.VolumeAttachment) bool { return len(ofDriver(all, "churn-stop")) == 0 })
	if err != nil {
		t.Error(err)
	}
	if got := twice.Load(); got > 0 {
		t.Errorf("%d times there were two VolumeAttachments of a volume", got)
	}
	if err := c.WaitCycles(ctx, 1); err == nil {
		t.Error("waiting for a load that has ended gave no error")
	}
}

func TestChurnSettlesWithEachVolumeAttachedWhereItSays(t *testing.T) {
	ctx, c, watcher, twice := churnThroughErrors(t, "churn-settle")
	if err := c.WaitCycles(ctx, 20); err != nil {
		t.Fatal(err)
	}
	settled, err := c.Settle(ctx)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, va := range ofDriver(watcher.List(), "churn-settle") {
		if va.Status.Attached {
			found[*va.Spec.Source.PersistentVolumeName] = va.Spec.NodeName
		}
	}
	if len(found) != 5 || !maps.Equal(found, settled) {
		t.Errorf("attached %v, want 5 and %v", found, settled)
	}
	if got := twice.Load(); got > 0 {
		t.Errorf("%d times there were two VolumeAttachments of a volume", got)
	}
}

func TestChurnThatCannotEndSaysHowThingsAre(t *testing.T) {
	plane := testbed.Shared(t)
	ctx, done := context.WithTimeout(t.Context(), testTimeout)
	defer done()
	watcher, err := testbed.WatchVolumeAttachments(ctx, plane.Clientset(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	c := startChurn(ctx, churnOptions{Cluster: testbed.NewCluster(plane.Clientset()), Watcher: watcher, Driver: "churn-stuck", Volumes: 1,
		Nodes: []string{"churn-stuck-n"}, Prefix: "churn-stuck", Seed: 1})
	err = watcher.WaitFor(ctx, "one made", func(all []*storagev1.VolumeAttachment) bool { return len(ofDriver(all, "churn-stuck")) > 0 })
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := c.WaitCycles(over, 1000); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting gave %v", err)
	}
	if err := c.Stop(over); !errors.Is(err, context.Canceled) {
		t.Errorf("the stop gave %v", err)
	}
}
