package adopt

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// Attacher is a csi-attacher in a workload.
type Attacher struct {
	Workload  *Workload
	Container corev1.Container
	Init      bool // it is one of initContainers
	Flags     Flags
	Socket    Socket
	User      User
	shell     string // that starts csi-attacher; "" for none
}

// FlagParser reads the arguments of a csi-attacher. Its error has every flag whose value cannot be read. Flags that
// it does not know are no error, and neither are variables in the values of flags that no setting stands for.
type FlagParser func(args []string) (Flags, error)

// Flags are the arguments of a csi-attacher.
type Flags struct {
	Settings       []Setting     // what the flags are in a DriverConfig, in the order of the flags
	Address        string        // --csi-address; "" if not given
	LeaderElection bool          // --leader-election
	LeaseNamespace string        // --leader-election-namespace; "" if not given
	LeaseDuration  time.Duration // --leader-election-lease-duration, or its default
	LockType       string        // --leader-election-type of csi-attacher before 2.0; "" if not given
	Kubeconfig     string        // --kubeconfig; "" if not given
	Other          []string      // flags that no setting replaces, each with the reason
	Unknown        []string      // arguments that csi-attacher of any known release does not have, as they are written
}

// Setting is a setting of a DriverConfig that a flag stands for.
type Setting struct {
	Key   string // with dots: retry.max
	Value string // in YAML
	Flag  string // with its dashes, or what else says the value
}

// String names the container and where it was read.
func (a Attacher) String() string {
	return fmt.Sprintf("%s: container %s", a.Workload.Object, terminal.Line(a.Container.Name))
}

// Find returns every csi-attacher of the Deployments, StatefulSets and DaemonSets, those that cannot be adopted too.
// namespace is that of objects without metadata.namespace. Its error has every workload and container that cannot be
// read; Attachers that could be read are returned beside it.
func Find(objects []Object, namespace string, parse FlagParser) (all []Attacher, err error) {
	var problems []error
	for _, o := range objects {
		if !isWorkload(o) {
			continue
		}
		w, err := newWorkload(o, namespace)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for i, c := range w.containers() {
			if !IsAttacher(c) {
				continue
			}
			a, err := newAttacher(w, i, parse)
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: %s (container %s): args: %w", o, w.pathOf(i), terminal.Line(c.Name), err))
				continue
			}
			all = append(all, a)
		}
	}
	return all, errors.Join(problems...)
}

var attacherImage = regexp.MustCompile(`(^|[-_/])(csi-attacher|external-attacher)([-_]|$)`)

// IsAttacher reports whether a container runs csi-attacher: by its image, or by its command or name beside the flag
// that csi-attacher has.
func IsAttacher(c corev1.Container) bool {
	return attacherImage.MatchString(imageName(c)) || len(c.Command) > 0 && path.Base(c.Command[0]) == "csi-attacher" ||
		hasFlag(c, "csi-address") && strings.HasSuffix(c.Name, "attacher")
}

// imageName returns the last part of the image's name, without registry, tag and digest.
func imageName(c corev1.Container) string {
	image, _, _ := strings.Cut(c.Image, "@")
	image, _, _ = strings.Cut(path.Base(image), ":")
	return image
}

// hasFlag reports whether the arguments have a flag that begins so.
func hasFlag(c corev1.Container, flag string) bool {
	return slices.ContainsFunc(slices.Concat(c.Command, c.Args), func(arg string) bool {
		return strings.HasPrefix(arg, "-") && strings.HasPrefix(strings.TrimLeft(arg, "-"), flag)
	})
}

// newAttacher reads the ith container of a workload.
func newAttacher(w *Workload, i int, parse FlagParser) (a Attacher, err error) {
	c := w.containers()[i]
	a = Attacher{Workload: w, Container: c, Init: i >= len(w.Template.Spec.Containers), User: userOf(w.Template.Spec, c)}
	line := w.wordsOf(c)
	if len(c.Command) > 0 {
		if base := path.Base(c.Command[0]); slices.Contains([]string{"sh", "bash", "ash", "dash"}, base) {
			a.shell = base
			return a, nil
		}
		line = line[1:]
	}
	a.Flags, err = parse(line)
	values := []Setting{{Flag: "--csi-address", Value: a.Flags.Address}, {Flag: "--leader-election-namespace", Value: a.Flags.LeaseNamespace}}
	for _, s := range append(values, a.Flags.Settings...) {
		if err == nil && variable.MatchString(s.Value) {
			err = errors.New(s.Flag)
		}
	}
	if unknown := variable.FindAllString(strings.Join(line, " "), -1); err != nil && len(unknown) > 0 {
		return a, fmt.Errorf("%w: the value is not in the manifest, write it there: %s", err, strings.Join(unknown, ", "))
	}
	a.Socket = socketOf(w.Template.Spec, c, a.Flags.Address)
	return a, err
}

var sidecarImage = regexp.MustCompile(`(^|[-_/])(csi-|external-)?(provisioner|attacher|resizer|snapshotter|snapshot-metadata|health-monitor-controller|node-driver-registrar|livenessprobe|liveness-probe)([-_]|$)`)

// isSidecar reports whether a container is a sidecar of kubernetes-csi, which is a client of the socket.
func isSidecar(c corev1.Container) bool {
	serves := hasFlag(c, "endpoint") || slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "CSI_ENDPOINT" })
	return sidecarImage.MatchString(imageName(c)) && !serves
}

// servers returns the containers of the attacher's Pod that can be the driver: they mount the socket's volume, and are
// no sidecars.
func (a Attacher) servers() []corev1.Container {
	return slices.DeleteFunc(a.Workload.running(), func(c corev1.Container) bool {
		return c.Name == a.Container.Name || isSidecar(c) || !mounts(c, a.Socket.Volume.Name)
	})
}

func mounts(c corev1.Container, volume string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
}
