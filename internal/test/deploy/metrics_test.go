package deploy_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
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

// known are the series of /metrics by name, and the values that each of their labels
// may have; nil for any.
type known map[string]map[string][]string

// metricsOfTheHub returns what a hub shows.
func metricsOfTheHub(t *testing.T) known {
	t.Helper()
	metrics := status.NewMetrics()
	d := metrics.Driver("d")
	d.Drift("kind", "action")
	d.Call("method", codes.OK, time.Second)
	// A request that reaches nobody counts too.
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kube.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{}); err == nil {
		t.Fatal("somebody answered")
	}
	return shapes(t, metrics.Gatherer(oneDriver{}))
}

func shapes(t *testing.T, gatherer prometheus.Gatherer) known {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := known{}
	for _, f := range families {
		labels := map[string][]string{}
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels[l.GetName()] = values[l.GetName()]
		}
		for _, l := range targetLabels {
			labels[l] = nil
		}
		labels["job"] = []string{"csi-attach-hub"} // the name of the Service
		if f.GetType() != dto.MetricType_HISTOGRAM {
			all[f.GetName()] = labels
			continue
		}
		all[f.GetName()+"_count"], all[f.GetName()+"_sum"] = labels, labels
		buckets := map[string][]string{"le": nil}
		for name, values := range labels {
			buckets[name] = values
		}
		all[f.GetName()+"_bucket"] = buckets
	}
	return all
}

// values of labels that have few.
var values = map[string][]string{
	"operation":        {string(status.Attach), string(status.Detach)},
	"result":           resultNames(),
	"agreement":        {string(status.Agreed), string(status.WouldHaveFailed), string(status.Differs)},
	"mode":             {"active", "observe", "paused"},
	"grpc_status_code": codeNames(),
}

func resultNames() []string {
	var names []string
	for _, r := range status.Results {
		names = append(names, string(r))
	}
	return names
}

func codeNames() []string {
	var names []string
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		names = append(names, c.String())
	}
	return slices.Clip(names)
}
