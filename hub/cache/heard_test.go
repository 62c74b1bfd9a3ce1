package cache

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"

	_ "github.com/csi-attach-hub/csi-attach-hub/hub/status" // has client-go count
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakekube"
)

// withCluster calls f with a Cluster in virtual time whose caches are filled.
func withCluster(t *testing.T, f func(*fakekube.API, *Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := fakekube.New()
		c, err := New(api.Client())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		f(api, c)
		stop()
		c.Stop()
		synctest.Wait()
	})
}

// create creates a VolumeAttachment, and waits until the Cluster has seen it.
func create(t *testing.T, c *Cluster, name string) {
	t.Helper()
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.kube.StorageV1().VolumeAttachments().Create(t.Context(), va, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func TestWatchThatDiesIsSilent(t *testing.T) {
	withCluster(t, func(api *fakekube.API, c *Cluster) {
		minutes := func(n int) {
			for range n {
				time.Sleep(time.Minute)
				api.Bookmark()
				synctest.Wait()
			}
		}
		silent := func(resource string) time.Duration { return time.Since(c.LastHeard()[resource]) }
		check := func(want time.Duration) {
			t.Helper()
			if got := silent("volumeattachments"); got != want {
				t.Errorf("VolumeAttachments: nothing heard for %s, want %s", got, want)
			}
			for _, resource := range []string{"persistentvolumes", "csinodes", "csidrivers"} {
				if got := silent(resource); got != 0 {
					t.Errorf("%s: nothing heard for %s, and a bookmark has come", resource, got)
				}
			}
		}
		create(t, c, "a") // the fake sends a bookmark only of a later version
		minutes(20)       // nothing changes, and bookmarks come
		check(0)
		api.HoldWatches("volumeattachments") // as a proxy that has lost the connection to the API server
		minutes(20)
		check(20 * time.Minute)
		api.ReleaseWatches("volumeattachments")
		synctest.Wait()
		check(0)
	})
}

func TestResourceThatWasNeverHeardOfIsNotSilent(t *testing.T) {
	c, err := New(fakekube.New().Client())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	if got := c.LastHeard(); len(got) > 0 {
		t.Errorf("heard %v before the start", got)
	}
}

// informerMetrics returns what /metrics has of client-go's informers of VolumeAttachments, by metric.
func informerMetrics(t *testing.T) (values map[string]float64, series int) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values = map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "informer_") {
			continue
		}
		for _, m := range f.GetMetric() {
			series++
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["name"] != "csi-attach-hub" {
				t.Errorf("%s has labels %v", f.GetName(), labels)
			}
			if labels["resource"] == "volumeattachments" {
				values[f.GetName()] = m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return values, series
}

func TestInformersCountTheirEventsAndTheirQueue(t *testing.T) {
	withCluster(t, func(_ *fakekube.API, c *Cluster) {
		before, series := informerMetrics(t)
		if series != 3*4 {
			t.Errorf("%d series, want three of each of four resources", series)
		}
		create(t, c, "a")
		after, _ := informerMetrics(t)
		if got := after["informer_processing_latency_seconds"]; got <= before["informer_processing_latency_seconds"] {
			t.Errorf("%v events processed after one more, %v before", got, before["informer_processing_latency_seconds"])
		}
		if got := after["informer_store_resource_version"]; got <= before["informer_store_resource_version"] {
			t.Errorf("resourceVersion %v after a change, %v before", got, before["informer_store_resource_version"])
		}
		if got, ok := after["informer_queued_items"]; !ok || got != 0 {
			t.Errorf("%v queued (%v), want an empty queue", got, ok)
		}
	})
}
