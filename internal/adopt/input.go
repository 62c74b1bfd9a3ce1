package adopt

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// input is what the objects say about drivers beside their csi-attachers.
type input struct {
	objects    []Object
	workloads  []*Workload
	csiDrivers []csiDriver
	registrars []registrar
}

// csiDriver is a CSIDriver object.
type csiDriver struct {
	name   string
	source Source
	attach bool // attachRequired
}

// registrar is a node-driver-registrar: it knows the name of a driver on nodes.
type registrar struct {
	name     string // of the driver
	workload *Workload
	volume   string // with the socket, in its Pod
}

// newInput reads the objects. Those that cannot be read say nothing here: Find returns their errors.
func newInput(objects []Object, namespace string) input {
	in := input{objects: objects}
	for _, o := range objects {
		if o.GetKind() == "CSIDriver" && registry.CheckName(o.GetName()) == nil {
			attach, found, _ := unstructured.NestedBool(o.Object, "spec", "attachRequired")
			in.csiDrivers = append(in.csiDrivers, csiDriver{o.GetName(), o.Source, attach || !found})
		}
		if w, err := newWorkload(o, namespace); err == nil {
			in.workloads = append(in.workloads, w)
		}
	}
	for _, w := range in.workloads {
		for _, c := range running(w.Template.Spec) {
			line, _ := wordsOf(w, c)
			name := path.Base(path.Dir(flagValue(line, "kubelet-registration-path")))
			if looksLikeDriver(name) {
				r := registrar{name: name, workload: w}
				if s := socketOf(w.Template.Spec, c, flagValue(line, "csi-address")); s.problem == "" {
					r.volume = s.Volume.Name
				}
				in.registrars = append(in.registrars, r)
			}
		}
	}
	return in
}

// csiDriver returns the CSIDriver object of a name.
func (in input) csiDriver(name string) (csiDriver, bool) {
	i := slices.IndexFunc(in.csiDrivers, func(d csiDriver) bool { return d.name == name })
	if i < 0 {
		return csiDriver{}, false
	}
	return in.csiDrivers[i], true
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

// servers returns the containers of the attacher's Pod that can be the driver: they mount the socket's volume, and are
// no sidecars.
func (a Attacher) servers() []corev1.Container {
	var all []corev1.Container
	for _, c := range running(a.Workload.Template.Spec) {
		if c.Name != a.Container.Name && !isSidecar(c) && mounts(c, a.Socket.Volume.Name) {
			all = append(all, c)
		}
	}
	return all
}

func mounts(c corev1.Container, volume string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
}

// decode converts a part of an object into a type. It reports whether it could.
func decode(o Object, into any) bool {
	data, err := json.Marshal(o.Object)
	return err == nil && json.Unmarshal(data, into) == nil
}

// hostPorts returns the ports that the Pods of the input use on the network of nodes. Those of proxies that adopt has
// added before do not count: a driver keeps its port.
func (in input) hostPorts() map[int32]bool {
	used := map[int32]bool{}
	for _, w := range in.workloads {
		if !w.Template.Spec.HostNetwork {
			continue
		}
		others := Workload{}
		for _, c := range w.containers() {
			if !strings.HasPrefix(c.Name, basePrefix) {
				others.Template.Spec.Containers = append(others.Template.Spec.Containers, c)
			}
		}
		for port := range (Plan{Attacher: Attacher{Workload: &others}}).usedPorts() {
			used[port] = true
		}
	}
	return used
}
