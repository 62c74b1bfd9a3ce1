package adopt

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// defaultAddress is csi-attacher's default of --csi-address.
const defaultAddress = "/run/csi/socket"

// Attacher is a csi-attacher in a workload.
type Attacher struct {
	Workload  *Workload
	Container corev1.Container
	Init      bool // it is one of initContainers
	Flags     Flags
	Socket    Socket
	User      User
}

// String names the container and where it was read.
func (a Attacher) String() string {
	return fmt.Sprintf("%s: container %s", a.Workload.Object, a.Container.Name)
}

// Socket is where the driver listens, as csi-attacher sees it.
type Socket struct {
	Path   string             // in the container, absolute
	Mount  corev1.VolumeMount // that has the socket
	Volume corev1.Volume
}

// Find returns every csi-attacher of the workloads among the objects. namespace is that of objects without
// metadata.namespace. Its error has every workload and container that cannot be read; Attachers that could be read
// are returned beside it.
func Find(objects []Object, namespace string, parse FlagParser) ([]Attacher, error) {
	var all []Attacher
	var problems []error
	for _, o := range objects {
		if !slices.Contains(workloadKinds, o.GetKind()) || !strings.HasPrefix(o.GetAPIVersion(), "apps/") {
			continue
		}
		w, err := newWorkload(o, namespace)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for i, c := range w.containers() {
			if !isAttacher(c) {
				continue
			}
			a, err := newAttacher(w, c, i >= len(w.Template.Spec.Containers), parse)
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: container %s: %w", o, c.Name, err))
				continue
			}
			all = append(all, a)
		}
	}
	return all, errors.Join(problems...)
}

var attacherImage = regexp.MustCompile(`(^|[-_/])(csi-attacher|external-attacher)([-_]|$)`)

// isAttacher reports whether a container runs csi-attacher: by its image, or by its command or name beside the flag
// that csi-attacher has.
func isAttacher(c corev1.Container) bool {
	image, _, _ := strings.Cut(c.Image, "@")
	image = path.Base(image)
	image, _, _ = strings.Cut(image, ":")
	if attacherImage.MatchString(image) {
		return true
	}
	if len(c.Command) > 0 && path.Base(c.Command[0]) == "csi-attacher" {
		return true
	}
	hasAddress := slices.ContainsFunc(slices.Concat(c.Command, c.Args), func(arg string) bool {
		return strings.HasPrefix(strings.TrimLeft(arg, "-"), "csi-address")
	})
	return hasAddress && strings.HasSuffix(c.Name, "attacher")
}

func newAttacher(w *Workload, c corev1.Container, init bool, parse FlagParser) (Attacher, error) {
	a := Attacher{Workload: w, Container: c, Init: init, User: userOf(w.Template.Spec, c)}
	args, err := arguments(c)
	if err != nil {
		return Attacher{}, err
	}
	if a.Flags, err = parse(args); err != nil {
		return Attacher{}, fmt.Errorf("args: %w", err)
	}
	a.Socket, err = socketOf(w.Template.Spec, c, a.Flags.Address)
	return a, err
}

var variable = regexp.MustCompile(`\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)`)

// arguments returns the arguments of csi-attacher, with the container's variables in them as the kubelet expands them.
func arguments(c corev1.Container) ([]string, error) {
	args := c.Args
	if len(c.Command) > 0 {
		if base := path.Base(c.Command[0]); slices.Contains([]string{"sh", "bash", "ash", "dash"}, base) {
			return nil, fmt.Errorf("command: csi-attacher is started by the shell %s, so its flags are not known: write them as args of csi-attacher", base)
		}
		args = slices.Concat(c.Command[1:], c.Args)
	}
	values := map[string]string{}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			values[e.Name] = expand(e.Value, values, nil)
		}
	}
	var unknown []string
	expanded := make([]string, len(args))
	for i, arg := range args {
		expanded[i] = expand(arg, values, &unknown)
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("args: the value of $(%s) is not in the manifest: write it there", strings.Join(unknown, "), $("))
	}
	return expanded, nil
}

// expand replaces variables. Those without a value stay, as with the kubelet, and are added to unknown.
func expand(s string, values map[string]string, unknown *[]string) string {
	return variable.ReplaceAllStringFunc(s, func(m string) string {
		if m == "$$" {
			return "$"
		}
		name := m[2 : len(m)-1]
		value, ok := values[name]
		if !ok {
			if unknown != nil && !slices.Contains(*unknown, name) {
				*unknown = append(*unknown, name)
			}
			return m
		}
		return value
	})
}

// socketOf returns the socket of an address, with the volume that has it.
func socketOf(pod corev1.PodSpec, c corev1.Container, address string) (Socket, error) {
	file := address
	if file == "" {
		file = defaultAddress
	}
	file = path.Clean("/" + strings.TrimPrefix(strings.TrimPrefix(file, "unix:"), "//"))
	s := Socket{Path: file}
	for _, m := range c.VolumeMounts { // the deepest mount has the file
		at := strings.TrimSuffix(path.Clean(m.MountPath), "/")
		if (file == at || strings.HasPrefix(file, at+"/")) && len(m.MountPath) > len(s.Mount.MountPath) {
			s.Mount = m
		}
	}
	if s.Mount.Name == "" {
		return s, fmt.Errorf("volumeMounts: no volume has the socket %s of --csi-address", file)
	}
	i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == s.Mount.Name })
	if i < 0 {
		return s, fmt.Errorf("volumeMounts: the Pod has no volume %s", s.Mount.Name)
	}
	s.Volume = pod.Volumes[i]
	return s, nil
}
