package adopt

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// fromHeldLeases returns the names of CSIDriver objects whose Lease a Pod of the workload holds.
func (in input) fromHeldLeases(a Attacher) named {
	names := named{}
	holders := in.holders(a.Workload)
	for name, lease := range in.leases(a) {
		if pod := holders[lease.holder]; pod != "" {
			names.add(name, fmt.Sprintf("Lease %s, held by Pod %s", lease.name, pod))
		}
	}
	return names
}

// fromLeases returns the names of CSIDriver objects that have a Lease where the attacher takes its own, whoever holds
// it. An attacher that takes none says nothing.
func (in input) fromLeases(a Attacher) named {
	names := named{}
	if a.Flags.LeaderElection {
		for name, lease := range in.leases(a) {
			names.add(name, "Lease "+lease.name)
		}
	}
	return names
}

// lease is one of a csi-attacher.
type lease struct{ name, holder string }

// leases returns the Leases in the attacher's namespace for Leases, by the names of their CSIDriver objects.
func (in input) leases(a Attacher) map[string]lease {
	all := map[string]lease{}
	for _, o := range in.objects {
		if o.GetKind() != "Lease" || o.GetNamespace() != (Plan{Attacher: a}).LeaseNamespace() {
			continue
		}
		holder, _, _ := unstructured.NestedString(o.Object, "spec", "holderIdentity")
		for _, d := range in.csiDrivers {
			if o.GetName() == registry.LeaseName(d.name) {
				all[d.name] = lease{o.GetName(), holder}
			}
		}
	}
	return all
}

// commonWords are in the names of many drivers, so they tell none.
var commonWords = []string{"csi", "driver", "drivers", "plugin", "storage", "k8s", "kubernetes", "sigs", "com", "io", "org", "net", "dev", "cloud", "example"}

// words returns the parts of a text between characters that are no letters and digits, in small letters.
func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// fromWords returns the names of the cluster's CSIDriver objects that have the most words in common with the workload,
// the images of the driver and the folder of the socket; of several, those that have volumes.
func (in input) fromWords(a Attacher) named {
	own := words(a.Workload.GetName())
	containers := a.servers()
	if makesAttacher(a.Container) {
		containers = append(containers, a.Container)
	}
	for _, c := range containers {
		image, _, _ := strings.Cut(c.Image, "@")
		if host, rest, found := strings.Cut(image, "/"); found && strings.ContainsAny(host, ".:") { // a registry serves many drivers
			image = rest
		}
		own = append(own, words(image)...)
	}
	if v := a.Socket.Volume; v.HostPath != nil {
		own = append(own, words(v.HostPath.Path)...)
	}
	own = append(own, words(path.Dir(a.Socket.Path))...)
	names, most := named{}, 0
	for _, d := range in.candidates() {
		var common []string
		for _, word := range words(d) {
			has := slices.ContainsFunc(own, func(w string) bool { return w == word || len(word) > 2 && strings.Contains(w, word) })
			if has && !slices.Contains(commonWords, word) && !slices.Contains(common, word) {
				common = append(common, word)
			}
		}
		if len(common) > most {
			names, most = named{}, len(common)
		}
		if most > 0 && len(common) == most {
			names.add(d, fmt.Sprintf("CSIDriver object of the cluster, and %q in the workload", strings.Join(common, ", ")))
		}
	}
	if used := maps.Clone(names); len(names) > 1 {
		maps.DeleteFunc(used, func(name, _ string) bool { return !in.hasVolume(name) })
		if len(used) > 0 {
			return used
		}
	}
	return names
}

// candidates returns the names of the cluster's CSIDriver objects that ask for attaching, sorted.
func (in input) candidates() []string {
	var all []string
	for _, d := range in.csiDrivers {
		if d.source.File == cluster && d.attach {
			all = append(all, d.name)
		}
	}
	slices.Sort(all)
	return all
}

// hasVolume reports whether the cluster has PersistentVolumes of a driver.
func (in input) hasVolume(driver string) bool {
	return slices.ContainsFunc(in.objects, func(o Object) bool {
		name, _, _ := unstructured.NestedString(o.Object, "spec", "csi", "driver")
		return o.GetKind() == "PersistentVolume" && name == driver
	})
}

// holders returns the Pods of a workload by the identity of a csi-attacher in them: the host name, with '-' for
// characters that are no letter or digit.
func (in input) holders(w *Workload) map[string]string {
	holders := map[string]string{}
	for _, o := range in.objects {
		if o.GetKind() != "Pod" || o.GetNamespace() != w.Namespace || w.Template.Labels == nil {
			continue
		}
		for key, value := range w.Template.Labels {
			if o.GetLabels()[key] != value {
				o.Object = nil
				break
			}
		}
		var pod corev1.Pod
		if o.Object == nil || !decode(o, &pod) {
			continue
		}
		host := cmp.Or(pod.Spec.Hostname, pod.Name)
		if pod.Spec.HostNetwork {
			host = pod.Spec.NodeName
		}
		holders[registry.SanitizedName(host[:min(len(host), 63)])] = pod.Name
	}
	return holders
}
