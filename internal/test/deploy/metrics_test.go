package deploy_test

import (
	"context"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// oneDriver is a hub that serves one driver, and about which every metric says
// something.
type oneDriver struct{}

func (oneDriver) Drivers() []status.Driver {
	return []status.Driver{{Name: "d", Up: true, Mode: "active", Endpoint: "e", Version: "v", Source: "s",
		Lanes: []status.Lane{{Operation: status.Attach}, {Operation: status.Detach}}}}
}

func (oneDriver) Attachments(status.AttachmentFilter) []status.Attachment { return nil }

func (oneDriver) Checklist(context.Context, string) []status.Check { return nil }

func (oneDriver) Overview() status.Overview {
	return status.Overview{Unserved: map[string]int{"other": 1}, Config: status.Config{Hash: "abc", Files: []status.ConfigFile{{Path: "f"}}}}
}

// targetLabels are those that Prometheus adds, by the ServiceMonitor.
var targetLabels = []string{"container", "instance", "job", "namespace", "pod", "service"}

// seriesOfTheHub returns the series that Prometheus has of a hub.
func seriesOfTheHub(t *testing.T) (all []labels.Labels) {
	t.Helper()
	metrics := status.NewMetrics()
	d := metrics.Driver("d")
	d.Drift("kind", "action")
	d.Call("method", codes.OK, time.Second)
	d.Call("method", codes.Internal, time.Second)
	// A request that reaches nobody counts too.
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kube.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{}); err == nil {
		t.Fatal("somebody answered")
	}
	families, err := metrics.Gatherer(oneDriver{}).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			b := labels.NewBuilder(labels.EmptyLabels())
			for _, name := range targetLabels {
				b.Set(name, "x")
			}
			b.Set("job", "csi-attach-hub") // the name of the Service
			for _, l := range m.GetLabel() {
				b.Set(l.GetName(), l.GetValue())
			}
			named := func(name string) labels.Labels { return b.Set(model.MetricNameLabel, name).Labels() }
			if f.GetType() != dto.MetricType_HISTOGRAM {
				all = append(all, named(f.GetName()))
				continue
			}
			all = append(all, named(f.GetName()+"_count"), named(f.GetName()+"_sum"))
			b.Set("le", "+Inf")
			all = append(all, named(f.GetName()+"_bucket"))
		}
	}
	return all
}
