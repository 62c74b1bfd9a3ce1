package explain_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// A driver whose Deployment has no replicas cannot be called. The Deployment is found by any of its traces, if they lead
// to no other.
func TestTheWorkloadOfADriverIsFoundByItsTraces(t *testing.T) {
	plane := testbed.Shared(t)
	kube := plane.Clientset()
	const stopped = "Deployment workload-of-driver/controller"
	traces := map[string]struct {
		endpoint string
		template func(*corev1.PodTemplateSpec) // of the Deployment
		holder   string                        // of the lease
		lease    string                        // namespace of the lease; that of the Deployment by default
		none     bool                          // it is not found
	}{
		"Service of the endpoint": {endpoint: "tcp://csi.workload-of-driver.svc:9443", template: func(p *corev1.PodTemplateSpec) { p.Labels["role"] = "csi" }},
		"label of adopt":          {template: func(p *corev1.PodTemplateSpec) { p.Labels["driver.attach-hub/"+driverName] = "true" }},
		"holder of the lease":     {holder: "controller-5d8f7c9b6d-x2x4z"},
		"argument":                {template: func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Args = []string{"--drivername=" + driverName} }},
		"variable": {template: func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "CSI_DRIVER_NAME", Value: driverName}}
		}},
		"name in a node plugin": {none: true, template: func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers[0].Args = []string{"--drivername=" + driverName, "--kubelet-registration-path=/x"}
		}},
		"none": {none: true},
		"in a namespace that the hub does not know": {none: true, lease: "elsewhere", template: func(p *corev1.PodTemplateSpec) {
			p.Labels["driver.attach-hub/"+driverName] = "true"
			p.Spec.Containers[0].Args = []string{"--drivername=" + driverName}
		}},
		"Service of the endpoint, with the lease elsewhere": {endpoint: "tcp://csi.workload-of-driver.svc:9443", lease: "elsewhere", template: func(p *corev1.PodTemplateSpec) { p.Labels["role"] = "csi" }},
		"Service of another":    {none: true, endpoint: "tcp://csi.workload-of-driver.svc:9443"},
		"Pod of another holder": {none: true, holder: "controller-of-another-5d8f7c9b6d-x2x4z"},
	}
	create := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "workload-of-driver"}}, metav1.CreateOptions{})
	create(err)
	_, err = kube.CoreV1().Services("workload-of-driver").Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "csi"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"role": "csi"}, Ports: []corev1.ServicePort{{Port: 9443}}}}, metav1.CreateOptions{})
	create(err)
	// A tenant's Deployment has all marks of the driver's controller.
	tenant := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "controller"}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(0)),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "csi"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"role": "csi", "driver.attach-hub/" + driverName: "true"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "driver", Image: "driver", Args: []string{"--drivername=" + driverName}}}}}}}
	_, err = kube.AppsV1().Deployments("default").Create(t.Context(), tenant, metav1.CreateOptions{})
	create(err)
	defer func() {
		create(kube.AppsV1().Deployments("default").Delete(t.Context(), "controller", metav1.DeleteOptions{}))
	}()
	for name, trace := range traces {
		t.Run(name, func(t *testing.T) {
			deployments := kube.AppsV1().Deployments("workload-of-driver")
			labels := map[string]string{"app": "controller"}
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "controller"}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(0)),
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "controller"}},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "driver", Image: "driver"}}}}}}
			if trace.template != nil {
				trace.template(&d.Spec.Template)
			}
			_, err := deployments.Create(t.Context(), d, metav1.CreateOptions{})
			create(err)
			defer func() { create(deployments.Delete(t.Context(), "controller", metav1.DeleteOptions{})) }()
			w := newWorld()
			w.served.Up, w.served.State, w.served.Lease.Mine, w.served.Lease.Holder = false, "Lost", false, ""
			w.served.Reason = "dial: connection refused"
			w.served.Endpoint, w.lease = trace.endpoint, nil
			if w.served.Lease.Namespace = "workload-of-driver"; trace.lease != "" {
				w.served.Lease.Namespace = trace.lease
			}
			if trace.holder != "" {
				w.lease = leaseOf(w.served.Lease.Namespace, trace.holder, 0)
			}
			stop := w.explainedOn(t, kube)
			if found := stop.Verdict == diagnosis.DriverStopped; found == trace.none || found && (stop.Object != stopped || len(stop.Commands) != 1) {
				t.Errorf("got %+v", stop)
			}
		})
	}
}

// explainedOn asks for the driver, with the objects of a real API server and a hub that is not.
func (w *world) explainedOn(t *testing.T, kube kubernetes.Interface) explain.Finding {
	t.Helper()
	if w.lease != nil {
		leases := kube.CoordinationV1().Leases(w.lease.Namespace)
		_, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: w.lease.Name}, Spec: w.lease.Spec}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = leases.Delete(t.Context(), w.lease.Name, metav1.DeleteOptions{}) }()
	}
	facts, err := explain.Gather(t.Context(), explain.Question{Kind: explain.Driver, Name: driverName}, explain.Sources{Kube: kube, Namespace: hubSpace, AskedNamespace: "default", Hub: w})
	if err != nil {
		t.Fatal(err)
	}
	report := explain.Explain(facts)
	if report.Subject == nil || len(report.Subject.Reasons) == 0 {
		t.Fatalf("no reason:\n%s", report.Text())
	}
	return report.Subject.Reasons[0].Finding
}
