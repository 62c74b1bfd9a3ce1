package deploy_test

import (
	"context"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/grpc/codes"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
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

// From Prometheus to the hub four objects name a port: one that does not exist is no error
// anywhere, and nothing is seen.
func TestPrometheusFindsThePortThatTheHubServes(t *testing.T) {
	objects := objectsOf(t, withProxies)
	container := as[appsv1.Deployment](t, find(t, objects, "Deployment", "csi-attach-hub")).Spec.Template.Spec.Containers[0]
	port := container.Ports[0]
	if port.Name != "http" || port.ContainerPort != 8080 || len(container.Ports) != 1 {
		t.Errorf("the ports are %v, want 8080, the default of --http-endpoint, by the name http, by which csi-attach-hub status finds it", container.Ports)
	}
	served := intstr.FromString(port.Name)
	service := as[corev1.Service](t, find(t, objects, "Service", "csi-attach-hub")).Spec.Ports[0]
	if service.TargetPort != served {
		t.Errorf("the Service leads to port %s, the hub serves %s", service.TargetPort.String(), served.String())
	}
	policy := as[networkingv1.NetworkPolicy](t, find(t, objects, "NetworkPolicy", "csi-attach-hub-metrics"))
	if port := policy.Spec.Ingress[0].Ports[0].Port; *port != served {
		t.Errorf("the network policy opens port %s, the hub serves %s", port.String(), served.String())
	}
	endpoints, _, _ := unstructured.NestedSlice(find(t, objects, "ServiceMonitor", "csi-attach-hub").Object, "spec", "endpoints")
	if endpoint := endpoints[0].(map[string]any); endpoint["port"] != service.Name {
		t.Errorf("scraped is %v, the Service has %s", endpoint["port"], service.Name)
	}
	for name, probe := range map[string]*corev1.Probe{"startup": container.StartupProbe, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe} {
		if get := probe.HTTPGet; get.Port != served || get.Scheme != "" {
			t.Errorf("the %s probe asks port %s by %s", name, get.Port.String(), get.Scheme)
		}
	}
}
