package hubclient

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/probes"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

func TestMain(m *testing.M) {
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// kubelet is as much of one as port-forward needs: it connects streams with ports of
// this machine. It returns the port that it listens on.
func kubelet(t *testing.T) int32 {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
			t.Errorf("handshake: %v", err)
			return
		}
		var pairs pairs
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
			pairs.take(stream)
			return nil
		})
		if conn != nil {
			<-conn.CloseChan()
		}
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(number)
}

// pairs brings the two streams of a connection together.
type pairs struct {
	mu   sync.Mutex
	open map[string]httpstream.Stream // by request ID
}

func (p *pairs) take(stream httpstream.Stream) {
	id := stream.Headers().Get(corev1.PortForwardRequestIDHeader)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[string]httpstream.Stream{}
	}
	first := p.open[id]
	if first == nil {
		p.open[id] = stream
		return
	}
	delete(p.open, id)
	data, problems := first, stream
	if data.Headers().Get(corev1.StreamType) != corev1.StreamTypeData {
		data, problems = stream, first
	}
	go forward(data, problems)
}

func forward(data, problems httpstream.Stream) {
	defer problems.Close()
	conn, err := net.Dial("tcp", "127.0.0.1:"+data.Headers().Get(corev1.PortHeader))
	if err != nil {
		fmt.Fprintf(problems, "unable to do port forwarding: %v", err)
		return
	}
	go func() {
		_, _ = io.Copy(conn, data)
		conn.Close()
	}()
	_, _ = io.Copy(data, conn)
	data.Close()
}

// source is one replica that serves drivers.
type source struct {
	identity string
	drivers  []status.Driver
}

func (s source) Drivers() []status.Driver { return slices.Clone(s.drivers) } // the caller owns them
func (s source) Checklist(context.Context, string) []status.Check {
	return []status.Check{{Name: "endpoint", OK: true}}
}
func (s source) Overview() status.Overview {
	return status.Overview{Identity: s.identity}
}
func (s source) Attachments(status.AttachmentFilter) []status.Attachment {
	return []status.Attachment{{Name: "csi-1", Driver: "d", State: status.Waiting, LastError: "replica " + s.identity}}
}

// serve runs the HTTP side of a replica and returns its port.
func serve(t *testing.T, s status.Source) int32 {
	t.Helper()
	server, err := status.Listen(t.Context(), status.Options{Endpoint: "127.0.0.1:0", Source: s, Metrics: status.NewMetrics(), Probes: new(probes.Probes)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return int32(server.Addr().(*net.TCPAddr).Port)
}

// pod makes a Pod of a hub on a node.
func pod(t *testing.T, kube kubernetes.Interface, namespace, name, node string, port int32, phase corev1.PodPhase) {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": "csi-attach-hub"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "hub", Image: "none",
			Ports: []corev1.ContainerPort{{Name: "other", ContainerPort: 1}, {Name: "http", ContainerPort: port}}}}},
	}
	p, err := kube.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Status.Phase = phase
	if _, err := kube.CoreV1().Pods(namespace).UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestAllPodsOfAHubAreAskedByPortForward(t *testing.T) {
	plane := testbed.Shared(t)
	kube, ctx, namespace := plane.Clientset(), t.Context(), "hub-of-pods"
	if _, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node, err := kube.CoreV1().Nodes().Create(ctx, testbed.Node{Name: "node-of-hubs"}.Build(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = kubelet(t)
	if _, err := kube.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	drivers := func(leads bool) []status.Driver {
		return []status.Driver{{Name: "d", State: "Ready", Up: true, Lease: status.Lease{Holder: "id-1", Mine: leads}}}
	}
	pod(t, kube, namespace, "hub-0", node.Name, serve(t, source{"id-0", drivers(false)}), corev1.PodRunning)
	pod(t, kube, namespace, "hub-1", node.Name, serve(t, source{"id-1", drivers(true)}), corev1.PodRunning)
	pod(t, kube, namespace, "hub-2", node.Name, 9, corev1.PodRunning) // nobody listens there
	pod(t, kube, namespace, "hub-3", node.Name, 9, corev1.PodPending)

	hub, err := Find(ctx, Options{Config: plane.RESTConfig(), Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	v := hub.View(ctx)
	if len(v.Replicas) != 4 || v.Replicas[0].Error != "" || v.Replicas[1].Error != "" {
		t.Fatalf("the replicas are %+v, want two that answer and two that do not", v.Replicas)
	}
	if text := v.Replicas[2].Error; !strings.Contains(text, "connection refused") {
		t.Errorf("the replica that does not listen says %q", text)
	}
	if text := v.Replicas[3].Error; text != "the Pod is Pending" {
		t.Errorf("the replica that does not run says %q", text)
	}
	if d := v.Driver("d"); d == nil || d.Leader != "id-1" || d.Replica != "Pod "+namespace+"/hub-1" {
		t.Fatalf("the driver is %+v, want it as hub-1 sees it", d)
	}
	if d, err := hub.Driver(ctx, v.Driver("d").Replica, "d"); err != nil || len(d.Checklist) != 1 {
		t.Errorf("the driver alone is %+v, %v, want it with its checklist", d, err)
	}
	named := func(name string) (all []status.Attachment, err error) {
		err = hub.Volumes(ctx, v, status.AttachmentFilter{Name: name}, func(a status.Attachment) { all = append(all, a) })
		return all, err
	}
	if all, err := named("csi-1"); err != nil || len(all) != 1 || all[0].LastError != "replica id-1" {
		t.Errorf("the attachment is %+v, %v, want what hub-1 says", all, err)
	}
	if all, err := named("csi-2"); err != nil || len(all) != 0 {
		t.Errorf("an attachment that nobody knows is %+v, %v", all, err)
	}
}

func TestNoPodsAreAnErrorThatSaysWhatWasLookedFor(t *testing.T) {
	_, err := Find(t.Context(), Options{Config: testbed.Shared(t).RESTConfig(), Namespace: "no-such-namespace"})
	if err == nil || !strings.Contains(err.Error(), "no-such-namespace") || !strings.Contains(err.Error(), PodLabels) {
		t.Errorf("the error is %v", err)
	}
}
