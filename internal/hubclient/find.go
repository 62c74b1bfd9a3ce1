package hubclient

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const (
	// PodLabels select the Pods of a hub.
	PodLabels = "app.kubernetes.io/name=csi-attach-hub"
	// defaultPort is the port of a Pod that names none: the default of --http-endpoint.
	defaultPort = 8080
	// requestTimeout bounds one request to a replica, including the connecting.
	requestTimeout = 10 * time.Second
)

// Options say how to reach a hub: by Server, or by Config and Namespace.
type Options struct {
	Server    string // URL of one replica, http(s)://host:port; empty: all Pods
	Config    *rest.Config
	Namespace string // of the Pods
}

// Find returns the replicas of a hub. It contacts the API server unless Server is set, and no
// replica. The caller closes the Hub.
func Find(ctx context.Context, o Options) (*Hub, error) {
	if o.Server != "" {
		base, err := url.Parse(o.Server)
		if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" ||
			base.RawQuery != "" || base.Fragment != "" || base.User != nil {
			return nil, fmt.Errorf("--server %q is not a valid URL: write http://host:port or https://host:port, and a path if a proxy serves the hub's /api below that path", o.Server)
		}
		return &Hub{[]*replica{newReplica(base.String(), base, nil)}}, nil
	}
	kube, err := corev1client.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("make the Kubernetes client: %w", err)
	}
	pods, err := kube.Pods(o.Namespace).List(ctx, metav1.ListOptions{LabelSelector: PodLabels})
	if err != nil {
		return nil, fmt.Errorf("find the hub's Pods in namespace %s: %w", o.Namespace, err)
	}
	if len(pods.Items) == 0 {
		return nil, fmt.Errorf("namespace %s has no Pod with the label %s: name the hub's namespace with --hub-namespace, or the address of a hub with --server", o.Namespace, PodLabels)
	}
	h := &Hub{}
	for i := range pods.Items {
		h.replicas = append(h.replicas, podReplica(o, kube, &pods.Items[i]))
	}
	slices.SortFunc(h.replicas, func(a, b *replica) int { return cmp.Compare(a.name, b.name) })
	return h, nil
}

// newReplica returns a replica that is reached by dial, or over the network if dial is nil. Its client ignores the
// proxies of the environment, which are for servers outside of the cluster.
func newReplica(name string, base *url.URL, dial func(context.Context, string, string) (net.Conn, error)) *replica {
	return &replica{name: name, base: base, client: http.Client{
		Transport:     &http.Transport{DialContext: dial},
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a hub never redirects
	}}
}

// podReplica returns a replica that is reached by port-forward.
func podReplica(o Options, kube corev1client.CoreV1Interface, pod *corev1.Pod) *replica {
	port := portOf(pod)
	host := "csi-attach-hub." + pod.Namespace + ".svc" // a hub takes it as Host on loopback
	target := kube.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	r := newReplica("Pod "+pod.Namespace+"/"+pod.Name, &url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}, tunnel{o.Config, target, port}.dial)
	if pod.Status.Phase != corev1.PodRunning {
		r.err = fmt.Errorf("the Pod is %s", cmp.Or(string(pod.Status.Phase), "new"))
	}
	return r
}

// portOf returns the port of a Pod that is named http.
func portOf(pod *corev1.Pod) string {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == "http" {
				return strconv.Itoa(int(p.ContainerPort))
			}
		}
	}
	return strconv.Itoa(defaultPort)
}
