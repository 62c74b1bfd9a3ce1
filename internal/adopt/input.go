package adopt

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// input is what the objects say about drivers beside their csi-attachers.
type input struct {
	objects   []Object
	workloads []*Workload
	attaches  map[string]bool   // attachRequired by the names of CSIDriver objects
	sources   map[string]string // of the CSIDriver objects
}

// newInput reads the objects. Those that cannot be read say nothing here: Find returns their errors.
func newInput(objects []Object, namespace string) input {
	in := input{objects: objects, attaches: map[string]bool{}, sources: map[string]string{}}
	for _, o := range objects {
		if name := o.GetName(); o.GetKind() == "CSIDriver" && registry.CheckName(name) == nil {
			attach, found, _ := unstructured.NestedBool(o.Object, "spec", "attachRequired")
			in.attaches[name], in.sources[name] = attach || !found, "CSIDriver object, "+o.Source
		}
		if w, err := newWorkload(o, namespace); err == nil && isWorkload(o) {
			in.workloads = append(in.workloads, w)
		}
	}
	return in
}

// Flags and variables of drivers that have their name.
var (
	nameFlags     = []string{"drivername", "driver-name", "driver", "csi-driver-name", "csi-name", "provisioner-name", "plugin-name"}
	nameVariables = []string{"DRIVER_NAME", "CSI_DRIVER_NAME", "X_CSI_DRIVER_NAME", "DRIVERNAME", "CSI_DRIVERNAME", "PROVISIONER_NAME"}
)

// driverNames returns the possible names of an attacher's driver, each with what says it. The user says it, else the
// arguments and the environment of the driver's container, among which CSIDriver objects of the input choose. The
// CSIDriver objects alone say it if the input has one csi-attacher.
func (in input) driverNames(a Attacher, all []Attacher, o Options) map[string]string {
	for _, given := range o.Drivers {
		if a.meant(given) {
			return map[string]string{givenName(given): "--driver"}
		}
	}
	possible := namesInPod(a, all)
	both := maps.Clone(possible)
	maps.DeleteFunc(both, func(name, _ string) bool { return in.sources[name] == "" })
	if len(both) > 0 {
		return both
	}
	for name, source := range in.sources {
		if len(all) == 1 && in.attaches[name] {
			possible[name] = source
		}
	}
	return possible
}

// meant reports whether the user gives the driver's name to this attacher, by CONTAINER=NAME, or by NAME alone.
func (a Attacher) meant(given string) bool {
	container, _, named := strings.Cut(given, "=")
	return !named || container == a.Container.Name
}

// givenName returns the name in NAME or CONTAINER=NAME.
func givenName(given string) string { return given[strings.Index(given, "=")+1:] }

// namesInPod returns the names in the arguments and the environment of the driver's container. A container that serves
// several sockets does not say which name is for which.
func namesInPod(a Attacher, all []Attacher) map[string]string {
	names := map[string]string{}
	for _, c := range a.servers() {
		if slices.ContainsFunc(all, func(other Attacher) bool {
			return other.Workload == a.Workload && other.Socket.Volume.Name != a.Socket.Volume.Name && mounts(c, other.Socket.Volume.Name)
		}) {
			continue
		}
		add := func(name, from string) {
			if looksLikeDriver(name) {
				names[name] = cmp.Or(names[name], fmt.Sprintf("%s of container %s", from, c.Name))
			}
		}
		line, values := a.Workload.wordsOf(c), a.Workload.environment(c)
		for _, flag := range nameFlags {
			add(flagValue(line, flag), "--"+flag)
		}
		for _, variable := range nameVariables {
			add(values[variable], variable)
		}
	}
	return names
}

// looksLikeDriver reports whether a text can only be the name of a driver: other arguments are words.
func looksLikeDriver(text string) bool {
	return strings.Contains(text, ".") && registry.CheckName(text) == nil && strings.ContainsFunc(text, func(r rune) bool { return r > '9' })
}

// flagValue returns the value of a flag, "" if it is not there.
func flagValue(line []string, flag string) string {
	for i, word := range line {
		name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !strings.HasPrefix(word, "-") || name != flag {
			continue
		}
		if !hasValue && i+1 < len(line) {
			value = line[i+1]
		}
		return value
	}
	return ""
}

// choosePort returns a port for the proxy whose next port is free too, for its health; 0 if there is none. used are the
// ports that are taken; those that are chosen are added.
func (p Plan) choosePort(used map[int32]bool) int32 {
	first := cmp.Or(p.Options.Port, 9443)
	if p.Options.Port == 0 && p.HostNetwork() {
		// By the driver alone, so that the ports stay the same when another driver is adopted. They are below the ports
		// that Kubernetes and Linux choose from by themselves (30000 and above).
		h := fnv.New32a()
		h.Write([]byte(p.Driver))
		first = int32(19000 + 2*(h.Sum32()%500))
	}
	for port := first; port < min(first+1000, 65535); port += 2 {
		if !used[port] && !used[port+1] {
			used[port], used[port+1] = true, true
			return port
		}
	}
	return 0
}

// number is what can be a port in an argument or variable: ":8080", "--port=8080", "https://0.0.0.0:9443/hook", "9443,9809".
var number = regexp.MustCompile(`\b\d{2,5}\b`)

// usedPorts returns all numbers that may be ports of containers on the network of a workload: many containers listen on
// ports of their arguments that the manifest does not list.
func (in input) usedPorts(w *Workload) map[int32]bool {
	used := map[int32]bool{}
	for _, other := range in.workloads {
		if other.Source != w.Source && !(other.Template.Spec.HostNetwork && w.Template.Spec.HostNetwork) {
			continue
		}
		text, _ := yaml.Marshal(other.containers()) // containers that have been decoded
		for _, digits := range number.FindAllString(string(text), -1) {
			port, _ := strconv.ParseInt(digits, 10, 32)
			used[int32(port)] = true
		}
	}
	return used
}

// attacherResources are what csi-attacher has rights on, and what only it writes is the first.
var attacherResources = []string{"volumeattachments", "volumeattachments/status", "persistentvolumes", "nodes", "csinodes", "csinodeinfos", "events", "secrets", "leases"}

// roles says which ClusterRoles let the ServiceAccount of a workload write VolumeAttachments, and what can go with csi-attacher.
func (in input) roles(w *Workload) (removable []string) {
	account := cmp.Or(w.Template.Spec.ServiceAccountName, w.Template.Spec.DeprecatedServiceAccount, "default")
	bindings := map[string]rbacv1.ClusterRoleBinding{} // by the name of their role
	for _, o := range in.objects {
		var b rbacv1.ClusterRoleBinding
		if o.GetKind() == "ClusterRoleBinding" && decode(o, &b) == nil && slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
			return s.Kind == "ServiceAccount" && s.Name == account && cmp.Or(s.Namespace, w.Namespace) == w.Namespace
		}) {
			bindings[b.RoleRef.Name] = b
		}
	}
	for _, o := range in.objects {
		var role rbacv1.ClusterRole
		binding, bound := bindings[o.GetName()]
		if o.GetKind() != "ClusterRole" || !bound || decode(o, &role) != nil {
			continue
		}
		writes, others := false, len(binding.Subjects) > 1
		for _, rule := range role.Rules {
			writes = writes || slices.Contains(rule.Resources, attacherResources[0]) && slices.ContainsFunc(rule.Verbs, func(verb string) bool { return verb == "patch" || verb == "update" })
			others = others || slices.ContainsFunc(rule.Resources, func(resource string) bool { return !slices.Contains(attacherResources, resource) })
		}
		if writes && others {
			removable = append(removable, "the verbs patch and update on volumeattachments and volumeattachments/status from ClusterRole "+role.Name)
		} else if writes {
			removable = append(removable, "ClusterRoleBinding "+binding.Name+" and ClusterRole "+role.Name)
		}
	}
	return removable
}

// policies returns the names of the network policies that select the Pods of a workload for Ingress, without those that
// adopt has made. One whose selector cannot be read counts: what it closes must not be opened.
func (in input) policies(w *Workload) (names []string) {
	for _, o := range in.objects {
		if o.GetKind() != "NetworkPolicy" || cmp.Or(o.GetNamespace(), w.Namespace) != w.Namespace || strings.HasPrefix(o.GetName(), basePrefix) {
			continue
		}
		var policy networkingv1.NetworkPolicy
		err := decode(o, &policy)
		selector, invalid := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		types := policy.Spec.PolicyTypes // empty: Ingress, and Egress if it has rules
		ingress := len(types) == 0 || slices.Contains(types, networkingv1.PolicyTypeIngress)
		if err != nil || ingress && (invalid != nil || selector.Matches(labels.Set(w.Template.Labels))) {
			names = append(names, o.GetName())
		}
	}
	return names
}
