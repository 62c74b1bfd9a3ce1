package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// API reads from the Kubernetes API.
type API interface {
	// Get returns the JSON of an absolute path.
	Get(ctx context.Context, path string, query url.Values) ([]byte, error)
}

// LiveName names a workload of the cluster.
type LiveName struct{ Resource, Name string }

// liveResources are what users of kubectl write for the workloads that can be adopted.
var liveResources = map[string][]string{
	"deployments":  {"deploy", "deployment", "deployments", "deployment.apps", "deployments.apps"},
	"statefulsets": {"sts", "statefulset", "statefulsets", "statefulset.apps", "statefulsets.apps"},
	"daemonsets":   {"ds", "daemonset", "daemonsets", "daemonset.apps", "daemonsets.apps"},
}

// ParseLiveName reads KIND/NAME. It reports whether the text can be that.
func ParseLiveName(text string) (LiveName, bool) {
	kind, name, _ := strings.Cut(text, "/")
	for resource, kinds := range liveResources {
		if slices.Contains(kinds, strings.ToLower(kind)) && name != "" && !strings.ContainsAny(name, "/%?#") && name != "." && name != ".." {
			return LiveName{resource, name}, true
		}
	}
	return LiveName{}, false
}

// set by the server or by those who write the object: they do not belong in a manifest.
var (
	serverFields      = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"}
	serverAnnotations = []string{lastApplied, "deployment.kubernetes.io/revision", "deprecated.daemonset.template.generation"}
)

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// ReadLive reads a workload of the cluster, as a manifest would have it.
func ReadLive(ctx context.Context, api API, name LiveName, namespace string) (Object, error) {
	data, err := api.Get(ctx, "/apis/apps/v1/namespaces/"+namespace+"/"+name.Resource+"/"+name.Name, nil)
	if err != nil {
		return Object{}, fmt.Errorf("read %s/%s in namespace %s: %w", name.Resource, name.Name, namespace, err)
	}
	o := Object{Source: Source{File: cluster}}
	if err := json.Unmarshal(data, &o.Object); err != nil {
		return Object{}, fmt.Errorf("read %s/%s in namespace %s: %w", name.Resource, name.Name, namespace, err)
	}
	annotations := o.GetAnnotations()
	o.NotApplied = annotations[lastApplied] == "" && !slices.ContainsFunc(o.GetManagedFields(), isKubectlApply)
	maps.DeleteFunc(annotations, func(key, _ string) bool { return slices.Contains(serverAnnotations, key) })
	o.SetAnnotations(annotations)
	unstructured.RemoveNestedField(o.Object, "status")
	for _, field := range serverFields {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "creationTimestamp")
	return o, nil
}

// related is a kind of objects that say more about the drivers of live workloads.
type related struct {
	path, kind string
	selector   labels.Selector
	keep       [][]string // fields; names of Secrets, never their content
	prefix     string     // of the names
	needed     string     // for what
}

// ReadAbout reads what the cluster says about the drivers of live attachers: CSIDriver objects, the Leases and the
// Pods that hold them, the DaemonSets of node plugins, network policies, and the names of Secrets in StorageClasses and PersistentVolumes. What cannot be read is left
// out with a warning.
func ReadAbout(ctx context.Context, api API, attachers []Attacher) (objects []Object, warnings []string) {
	all := []related{
		{path: "/apis/storage.k8s.io/v1/csidrivers", kind: "CSIDriver", keep: [][]string{{"spec", "attachRequired"}}, needed: "the driver's name"},
		{path: "/apis/storage.k8s.io/v1/storageclasses", kind: "StorageClass", keep: [][]string{{"provisioner"}, {"parameters"}}, needed: "the Secrets for attaching"},
		{path: "/api/v1/persistentvolumes", kind: "PersistentVolume", keep: [][]string{{"spec", "csi", "driver"}, {"spec", "csi", "controllerPublishSecretRef"}}, needed: "the Secrets for attaching"},
	}
	seen := map[string]bool{}
	for _, a := range attachers {
		if a.Workload.Source.File != cluster {
			continue
		}
		p := Plan{Attacher: a}
		if path := "/apis/coordination.k8s.io/v1/namespaces/" + p.LeaseNamespace() + "/leases"; !seen[path] {
			seen[path] = true
			all = append(all, related{path: path, kind: "Lease", prefix: "external-attacher-leader-", keep: [][]string{{"spec", "holderIdentity"}}, needed: "the driver's name"})
		}
		if path := "/apis/networking.k8s.io/v1/namespaces/" + a.Workload.Namespace + "/networkpolicies"; !seen[path] {
			seen[path] = true
			all = append(all, related{path: path, kind: "NetworkPolicy", needed: "whether --other-policies is needed",
				keep: [][]string{{"spec", "podSelector"}, {"spec", "policyTypes"}}})
		}
		if path := "/apis/apps/v1/namespaces/" + a.Workload.Namespace + "/daemonsets"; !seen[path] {
			seen[path] = true
			all = append(all, related{path: path, kind: "DaemonSet", needed: "the driver's name",
				keep: [][]string{{"spec", "template", "spec", "containers"}, {"spec", "template", "spec", "volumes"}}})
		}
		selector := labels.SelectorFromSet(a.Workload.Template.Labels)
		if path := "/api/v1/namespaces/" + a.Workload.Namespace + "/pods"; !seen[path+selector.String()] && !selector.Empty() {
			seen[path+selector.String()] = true
			all = append(all, related{path: path, kind: "Pod", selector: selector,
				keep: [][]string{{"spec", "hostname"}, {"spec", "hostNetwork"}, {"spec", "nodeName"}}, needed: "the driver's name"})
		}
	}
	if len(seen) == 0 {
		return nil, nil
	}
	for _, r := range all {
		read, err := r.list(ctx, api)
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("cannot read %s objects, which can say %s: %v", r.kind, r.needed, err))
		}
		objects = append(objects, read...)
	}
	return objects, warnings
}

// list reads the objects page by page, and keeps of each what is needed.
func (r related) list(ctx context.Context, api API) ([]Object, error) {
	query := url.Values{"limit": {"500"}}
	if r.selector != nil {
		query.Set("labelSelector", r.selector.String())
	}
	var all []Object
	for {
		data, err := api.Get(ctx, r.path, query)
		if err != nil {
			return all, err
		}
		var page struct {
			Metadata struct{ Continue string }
			Items    []map[string]any
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return all, errors.New("the answer is no list")
		}
		for _, item := range page.Items {
			if o := (&unstructured.Unstructured{Object: item}); strings.HasPrefix(o.GetName(), r.prefix) {
				all = append(all, r.kept(o))
			}
		}
		if page.Metadata.Continue == "" {
			return all, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// kept returns an object with nothing but its names, its labels and the fields to keep.
func (r related) kept(from *unstructured.Unstructured) Object {
	o := Object{Unstructured: unstructured.Unstructured{Object: map[string]any{}}, Source: Source{File: cluster}}
	o.SetKind(r.kind)
	o.SetName(from.GetName())
	o.SetNamespace(from.GetNamespace())
	o.SetLabels(from.GetLabels())
	for _, path := range r.keep {
		if value, found, err := unstructured.NestedFieldCopy(from.Object, path...); found && err == nil {
			_ = unstructured.SetNestedField(o.Object, value, path...) // fails only below a field that is no mapping
		}
	}
	return o
}

func isKubectlApply(f metav1.ManagedFieldsEntry) bool {
	return f.Manager == "kubectl" && f.Operation == metav1.ManagedFieldsOperationApply || f.Manager == "kubectl-client-side-apply"
}
