package adopt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// input is what the objects say about drivers beside their csi-attachers.
type input struct {
	objects    []Object
	workloads  []*Workload
	csiDrivers []csiDriver
}

// csiDriver is a CSIDriver object.
type csiDriver struct {
	name   string
	source Source
	attach bool // attachRequired
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

// decode converts an object into a type. It reports whether it could.
func decode(o Object, into any) bool {
	data, err := json.Marshal(o.Object)
	return err == nil && json.Unmarshal(data, into) == nil
}

// Flags and variables of drivers that have their name.
var (
	nameFlags     = []string{"drivername", "driver-name", "driver", "csi-driver-name", "csi-name", "provisioner-name", "plugin-name"}
	nameVariables = []string{"DRIVER_NAME", "CSI_DRIVER_NAME", "X_CSI_DRIVER_NAME", "DRIVERNAME", "CSI_DRIVERNAME", "PROVISIONER_NAME"}
)

// named are possible names of a driver, each with what says it.
type named map[string]string

func (n named) add(name, from string) { n[name] = cmp.Or(n[name], from) }

// String lists the names, each with its source.
func (n named) String() string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		texts = append(texts, fmt.Sprintf("%s (%s)", name, n[name]))
	}
	return strings.Join(texts, ", ")
}

// driverName returns the name of an attacher's driver and what says it: the user, else the arguments and the
// environment of the driver's container, among which CSIDriver objects of the input choose. The CSIDriver objects alone
// say it if the input has one csi-attacher. If several names are possible, driverName returns these.
func (in input) driverName(a Attacher, all []Attacher, o Options) (name, from string, possible named) {
	for _, given := range o.Drivers {
		if who, name, named := strings.Cut(given, "="); named && a.is(who) {
			return name, "--driver", nil
		} else if !named && len(all) == 1 {
			return given, "--driver", nil
		}
	}
	possible = fromDriver(a, all)
	objects := named{}
	for _, d := range in.csiDrivers {
		if d.attach || possible[d.name] != "" {
			objects.add(d.name, fmt.Sprintf("CSIDriver object, %s", d.source))
		}
	}
	both := maps.Clone(possible)
	maps.DeleteFunc(both, func(name, _ string) bool { return objects[name] == "" })
	switch {
	case len(both) > 0:
		possible = both
	case len(all) == 1:
		maps.Copy(possible, objects)
	}
	for name, from := range possible {
		if len(possible) == 1 {
			return name, terminal.Line(from), nil
		}
	}
	return "", "", possible
}

// is reports whether the user means this attacher by CONTAINER or WORKLOAD/CONTAINER.
func (a Attacher) is(who string) bool {
	return who == a.Container.Name || who == a.Workload.GetName()+"/"+a.Container.Name
}

// fromDriver returns the names in the arguments and the environment of the driver's container. A container that serves
// several sockets does not say which name is for which.
func fromDriver(a Attacher, all []Attacher) named {
	names := named{}
	for _, c := range a.servers() {
		if slices.ContainsFunc(all, func(other Attacher) bool {
			return other.Workload == a.Workload && other.Socket.Volume.Name != a.Socket.Volume.Name && mounts(c, other.Socket.Volume.Name)
		}) {
			continue
		}
		line, _ := wordsOf(a.Workload, c)
		for _, flag := range nameFlags {
			if value := flagValue(line, flag); looksLikeDriver(value) {
				names.add(value, fmt.Sprintf("--%s of container %s", flag, c.Name))
			}
		}
		values := environment(a.Workload, c).values
		for _, variable := range nameVariables {
			if value := values[variable]; looksLikeDriver(value) {
				names.add(value, fmt.Sprintf("%s of container %s", variable, c.Name))
			}
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
