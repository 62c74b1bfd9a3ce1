package adopt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Flags and variables of drivers that have their name.
var (
	nameFlags     = []string{"drivername", "driver-name", "driver", "csi-driver-name", "csi-name", "provisioner-name", "plugin-name"}
	nameVariables = []string{"DRIVER_NAME", "CSI_DRIVER_NAME", "X_CSI_DRIVER_NAME", "DRIVERNAME", "CSI_DRIVERNAME", "PROVISIONER_NAME"}
)

// named are possible names of a driver, each with what says it.
type named map[string]string

func (n named) add(name, from string) { n[name] = cmp.Or(n[name], from) }

// only returns the name if there is just one.
func (n named) only() (name, from string, ok bool) {
	for name, from = range n {
		return name, from, len(n) == 1
	}
	return "", "", false
}

// String lists the names, each with its source.
func (n named) String() string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		texts = append(texts, fmt.Sprintf("%s (%s)", name, n[name]))
	}
	return strings.Join(texts, ", ")
}

// driverName returns the name of an attacher's driver and what says it: the user, else the input. If nothing says it,
// or several names are possible, it returns these.
func (in input) driverName(a Attacher, all []Attacher, o Options) (name, from string, possible named) {
	if given, ok := o.given(a, all); ok {
		return given, "--driver", nil
	}
	for _, find := range []func() named{
		func() named { return fromDeployer(a) },
		func() named { return in.fromDriver(a, all) },
		func() named { return in.fromSocket(a) },
		func() named { return in.fromHeldLeases(a) },
		func() named { return in.fromWords(a) },
		func() named { return in.fromNeighbours(a, all) },
		func() named { return in.fromLeases(a) },
	} {
		names := find()
		if len(possible) > 0 { // weaker evidence chooses among names, and adds none
			maps.DeleteFunc(names, func(name, _ string) bool { return possible[name] == "" })
		}
		if name, from, ok := names.only(); ok {
			return name, from, nil
		}
		if len(names) > 1 {
			possible = names
			if a.Workload.Source.File != cluster {
				break
			}
		}
	}
	return "", "", possible
}

// fromDeployer returns the name of the driver that Longhorn's driver deployer makes: it is part of that program.
func fromDeployer(a Attacher) named {
	names := named{}
	if c := a.Container; makesAttacher(c) && slices.Contains(slices.Concat(c.Command, c.Args), "deploy-driver") && imageName(c) == "longhorn-manager" {
		names.add("driver.longhorn.io", fmt.Sprintf("the program of container %s", c.Name))
	}
	return names
}

// given returns the name that the user gives for an attacher.
func (o Options) given(a Attacher, all []Attacher) (string, bool) {
	for _, given := range o.Drivers {
		if who, name, named := strings.Cut(given, "="); named && a.is(who) {
			return name, true
		} else if !named && len(all) == 1 {
			return given, true
		}
	}
	return "", false
}

// is reports whether the user means this attacher by CONTAINER or WORKLOAD/CONTAINER.
func (a Attacher) is(who string) bool {
	return who == a.Container.Name || who == a.Workload.GetName()+"/"+a.Container.Name
}

// fromDriver returns the names in the arguments and the environment of the driver's container. A container that serves
// several sockets does not say which name is for which.
func (in input) fromDriver(a Attacher, all []Attacher) named {
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
	if d := in.csiDrivers; len(names) == 1 && len(all) == 1 && len(d) == 1 && d[0].source.File != cluster {
		names.add(d[0].name, fmt.Sprintf("CSIDriver object, %s", d[0].source)) // they have to agree
	}
	return names
}

// fromSocket returns the names that belong to the attacher's socket: of a registrar beside it, or in the paths at which
// containers mount its volume.
func (in input) fromSocket(a Attacher) named {
	names := named{}
	for _, r := range in.registrars {
		if r.workload.same(a.Workload) && r.volume == a.Socket.Volume.Name && r.volume != "" {
			names.add(r.name, "--kubelet-registration-path in the same Pod")
		}
	}
	if len(names) > 0 {
		return names
	}
	paths := map[string]string{}
	if v := a.Socket.Volume; v.HostPath != nil {
		paths[v.HostPath.Path] = "path of the socket's volume " + v.Name
	}
	for _, c := range running(a.Workload.Template.Spec) {
		for _, m := range c.VolumeMounts {
			if m.Name == a.Socket.Volume.Name {
				paths[m.MountPath] = "path at which container " + c.Name + " mounts the socket's volume"
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		for part := range strings.SplitSeq(p, "/") {
			for _, d := range in.csiDrivers {
				if part == d.name || part == registry.SanitizedName(d.name) {
					names.add(d.name, paths[p])
				}
			}
			if looksLikeDriver(part) && len(names) == 0 && a.Socket.ofNode() {
				names.add(part, paths[p])
			}
		}
	}
	return names
}

// fromNeighbours returns the names of CSIDriver objects and of registrars, in the smallest part of the input that has
// this attacher alone: its file, its namespace, all.
func (in input) fromNeighbours(a Attacher, all []Attacher) named {
	type scope struct {
		near       func(other *Workload) bool
		csiDrivers func(d csiDriver) bool
	}
	for _, s := range []scope{
		{func(w *Workload) bool { return w.Source.File == a.Workload.Source.File && w.Source.File != cluster },
			func(d csiDriver) bool { return d.source.File == a.Workload.Source.File }},
		{func(w *Workload) bool { return w.Namespace == a.Workload.Namespace }, func(csiDriver) bool { return false }},
		{func(*Workload) bool { return true }, func(csiDriver) bool { return true }},
	} {
		alone := !slices.ContainsFunc(all, func(other Attacher) bool {
			return s.near(other.Workload) && (other.Workload != a.Workload || other.Path != a.Path)
		})
		if !alone || !s.near(a.Workload) {
			continue
		}
		names := named{}
		for _, d := range in.csiDrivers {
			if d.source.File != cluster && d.attach && s.csiDrivers(d) {
				names.add(d.name, fmt.Sprintf("CSIDriver object, %s", d.source))
			}
		}
		for _, r := range in.registrars {
			d, known := in.csiDriver(r.name)
			if s.near(r.workload) && (!known || d.attach) {
				names.add(r.name, fmt.Sprintf("--kubelet-registration-path in %s %s", r.workload.GetKind(), r.workload.GetName()))
			}
		}
		if len(names) > 0 {
			return names
		}
	}
	return nil
}
