package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// driverLabel and a driver's name are the label that `adopt` puts on the Pods of the driver's controller.
const driverLabel = "driver.attach-hub/"

// Workload runs the controller of a driver.
type Workload struct {
	Kind              string `json:"-"` // Deployment, StatefulSet or DaemonSet
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Replicas *int32                 `json:"replicas"`
		Template corev1.PodTemplateSpec `json:"template"`
	} `json:"spec"`
	Status struct {
		ReadyReplicas int32 `json:"readyReplicas"`
	} `json:"status"`
}

// workloadKind is a kind of a Workload.
type workloadKind struct {
	kind, resource string
	pod            *regexp.Regexp // what follows the name of the workload in the names of its Pods
}

var workloadKinds = []workloadKind{
	{"Deployment", "deployments", regexp.MustCompile(`^-[a-z0-9]{1,10}-[a-z0-9]{5}$`)},
	{"StatefulSet", "statefulsets", regexp.MustCompile(`^-[0-9]+$`)},
	{"DaemonSet", "daemonsets", regexp.MustCompile(`^-[a-z0-9]{5}$`)},
}

// ref names the workload for people.
func (w *Workload) ref() string { return ref(Kind(w.Kind), w.Namespace, w.Name) }

// kubectl returns a kubectl command for the workload: "kubectl -n storage rollout restart deployment/csi".
func (w *Workload) kubectl(verb ...string) []string {
	return append(append([]string{"kubectl", "-n", w.Namespace}, verb...), strings.ToLower(w.Kind)+"/"+w.Name)
}

// stopped reports whether it is to run no Pod.
func (w *Workload) stopped() bool { return w.Kind != "DaemonSet" && ptr.Deref(w.Spec.Replicas, 1) == 0 }

// ownsPod reports whether a Pod of this name is one of the workload's. The Pod may be gone.
func (w *Workload) ownsPod(name string) bool {
	rest, named := strings.CutPrefix(name, w.Name)
	return named && slices.ContainsFunc(workloadKinds, func(k workloadKind) bool { return k.kind == w.Kind && k.pod.MatchString(rest) })
}

// workloadOf returns what runs the controller of the driver of a volume, nil if that is not known: by the first of these
// that leads to one workload only: the Service that the endpoint names, the label of `adopt`, the holder of the lease,
// the driver's name in the arguments or the environment of its containers. It needs no rights but those of the caller: what
// may not be read leads nowhere.
func (g *gatherer) workloadOf(ctx context.Context, v *Volume) *Workload {
	all := g.workloads(ctx, v)
	selector, namespace := g.endpointSelector(ctx, v)
	for _, is := range []func(*Workload) bool{
		func(w *Workload) bool {
			return selector != nil && w.Namespace == namespace && selector.Matches(labels.Set(w.Spec.Template.Labels))
		},
		func(w *Workload) bool { return w.Spec.Template.Labels[driverLabel+v.Driver] == "true" },
		func(w *Workload) bool { return slices.ContainsFunc(g.holders(v), w.isHolder) },
		func(w *Workload) bool { return w.names(v.Driver) },
	} {
		var found []*Workload
		for i := range all {
			if is(&all[i]) {
				found = append(found, &all[i])
			}
		}
		if len(found) == 1 {
			return found[0]
		}
	}
	return nil
}

// workloads reads the workloads of the namespaces in which the driver's controller may run.
func (g *gatherer) workloads(ctx context.Context, v *Volume) []Workload {
	var all []Workload
	for _, namespace := range g.namespacesOf(v) {
		for _, k := range workloadKinds {
			all = append(all, items(g.workloadsOf(ctx, k.kind, "/apis/apps/v1/namespaces/"+namespace+"/"+k.resource))...)
		}
	}
	return all
}

// workloadsOf reads a list of workloads as JSON: the types of the group apps would make the program larger.
func (g *gatherer) workloadsOf(ctx context.Context, kind, path string) Object[[]Workload] {
	return once(g, path, func() Object[[]Workload] {
		var all []Workload
		for next := ""; ; {
			var page struct {
				Metadata metav1.ListMeta `json:"metadata"`
				Items    []Workload      `json:"items"`
			}
			body, err := g.Kube.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").
				Param("limit", "500").Param("continue", next).Do(ctx).Raw()
			if err == nil {
				err = json.Unmarshal(body, &page)
			}
			if err != nil {
				return Unreadable[[]Workload](fmt.Errorf("list %s: %w", path, err))
			}
			for _, w := range page.Items {
				w.Kind = kind
				all = append(all, w)
			}
			if next = page.Metadata.Continue; next == "" {
				return Present(&all)
			}
		}
	})
}

// namespacesOf returns the namespaces in which the driver's controller may run: those of the hub, of the driver's endpoint
// and lease in the hub's configuration, and of Kubernetes itself. In another one, anybody who may create a Deployment there
// could give it the marks of the controller.
func (g *gatherer) namespacesOf(v *Volume) []string {
	all := []string{g.Namespace, metav1.NamespaceSystem}
	if v.Served != nil {
		_, ofEndpoint := serviceOf(v)
		all = append(all, ofEndpoint, v.Served.Lease.Namespace)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(namespace string) bool { return namespace == "" })
}

// serviceOf returns the Service that the driver's endpoint names, "" if it names none.
func serviceOf(v *Volume) (name, namespace string) {
	if v.Served == nil {
		return "", ""
	}
	endpoint, err := url.Parse(v.Served.Endpoint)
	if err != nil || endpoint.Scheme != "tcp" || net.ParseIP(endpoint.Hostname()) != nil {
		return "", ""
	}
	parts := strings.Split(endpoint.Hostname(), ".") // NAME.NAMESPACE.svc, or only NAME.NAMESPACE
	if len(parts) < 2 || len(parts) > 2 && parts[2] != "svc" {
		return "", ""
	}
	return parts[0], parts[1]
}

// endpointSelector returns the selector of the Service that the driver's endpoint names, and its namespace.
func (g *gatherer) endpointSelector(ctx context.Context, v *Volume) (labels.Selector, string) {
	name, namespace := serviceOf(v)
	service := one(ctx, g, "Service", namespace, name, g.Kube.CoreV1().Services(namespace).Get)
	if service.Value() == nil || len(service.Value().Spec.Selector) == 0 {
		return nil, ""
	}
	return labels.SelectorFromSet(service.Value().Spec.Selector), namespace
}

// holder is the Pod that holds or held a lease: csi-attacher's identity is the name of its Pod.
type holder struct{ namespace, pod string }

// holders returns the holders of the driver's leases that are not replicas of the hub.
func (g *gatherer) holders(v *Volume) []holder {
	var all []holder
	w := walk{Facts: &g.facts, Volume: v}
	for _, l := range items(v.Leases.All) {
		if identity := ptr.Deref(l.Spec.HolderIdentity, ""); identity != "" && !w.isReplica(identity) {
			pod, _, _ := strings.Cut(identity, "_")
			all = append(all, holder{l.Namespace, pod})
		}
	}
	return all
}

func (w *Workload) isHolder(h holder) bool { return w.Namespace == h.namespace && w.ownsPod(h.pod) }

// names reports whether an argument or a variable of its containers is the name of a driver. It is not so for a node
// plugin: that has a registrar, and is not what attaches.
func (w *Workload) names(driver string) bool {
	named := false
	for _, c := range w.Spec.Template.Spec.Containers {
		for _, word := range slices.Concat(c.Command, c.Args) {
			if strings.Contains(word, "kubelet-registration-path") {
				return false
			}
			_, value, _ := strings.Cut(word, "=")
			named = named || strings.HasPrefix(word, "-") && value == driver || word == driver
		}
		named = named || slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Value == driver })
	}
	return named
}
