package adopt

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// Attacher is a csi-attacher in a workload.
type Attacher struct {
	Workload  *Workload
	Container corev1.Container
	Init      bool   // it is one of initContainers
	Path      string // of the container in the object: spec.template.spec.containers[2]
	Flags     Flags
	Socket    Socket
	User      User
	shell     string    // that starts csi-attacher; "" for none
	unknown   []missing // variables of the arguments whose value the manifest does not have
}

// String names the container and where it was read.
func (a Attacher) String() string {
	return fmt.Sprintf("%s: container %s", a.Workload.Object, terminal.Line(a.Container.Name))
}

// Find returns every csi-attacher of the objects that make Pods, those that cannot be adopted too. namespace is that
// of objects without metadata.namespace. Its error has every workload and container that cannot be read; Attachers
// that could be read are returned beside it.
func Find(objects []Object, namespace string, parse FlagParser) ([]Attacher, error) {
	var all []Attacher
	var problems []error
	for _, o := range objects {
		if isMade(o) {
			continue
		}
		w, err := newWorkload(o, namespace)
		if err != nil {
			if isWorkload(o) { // in others a template can be something else
				problems = append(problems, err)
			}
			continue
		}
		for i, c := range w.containers() {
			if !IsAttacher(c) {
				continue
			}
			if err := w.checkNames(); err != nil {
				problems = append(problems, err)
				break
			}
			a, err := newAttacher(w, i, parse)
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: %s (container %s): %w", o, a.Path, terminal.Line(c.Name), err))
				continue
			}
			all = append(all, a)
		}
	}
	return all, errors.Join(problems...)
}

// isMade reports whether another object of Kubernetes itself makes the object: that one is to be changed.
func isMade(o Object) bool {
	owner := o.controller()
	return owner != nil && !isWorkload(o) && (strings.HasPrefix(owner.APIVersion, "apps/") || strings.HasPrefix(owner.APIVersion, "batch/"))
}

var attacherImage = regexp.MustCompile(`(^|[-_/])(csi-attacher|external-attacher)([-_]|$)`)

// IsAttacher reports whether a container runs csi-attacher: by its image, or by its command or name beside the flag
// that csi-attacher has.
func IsAttacher(c corev1.Container) bool {
	if attacherImage.MatchString(imageName(c)) {
		return true
	}
	if len(c.Command) > 0 && path.Base(c.Command[0]) == "csi-attacher" {
		return true
	}
	return hasFlag(c, "csi-address") && strings.HasSuffix(c.Name, "attacher")
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
func newAttacher(w *Workload, i int, parse FlagParser) (Attacher, error) {
	c := w.containers()[i]
	a := Attacher{Workload: w, Container: c, Init: i >= len(w.Template.Spec.Containers), Path: w.pathOf(i), User: userOf(w.Template.Spec, c)}
	line, unknown := wordsOf(w, c)
	if len(c.Command) > 0 {
		if base := path.Base(c.Command[0]); slices.Contains([]string{"sh", "bash", "ash", "dash"}, base) {
			a.shell = base
			return a, nil
		}
		line = line[1:]
	}
	a.unknown = unknown
	flags, err := parse(line)
	if err != nil {
		return a, fmt.Errorf("args: %w%s", err, writeThere(unknown))
	}
	a.Flags = flags
	values := []Setting{{Flag: "--csi-address", Value: flags.Address}, {Flag: "--leader-election-namespace", Value: flags.LeaseNamespace}}
	for _, s := range append(values, flags.Settings...) {
		for _, m := range unknown {
			if strings.Contains(s.Value, "$("+m.name+")") {
				return a, fmt.Errorf("args: %s%s", s.Flag, writeThere([]missing{m}))
			}
		}
	}
	a.Socket = socketOf(w.Template.Spec, c, flags.Address)
	return a, nil
}

// writeThere says which values have to be written into the manifest.
func writeThere(unknown []missing) string {
	var texts []string
	for _, m := range unknown {
		texts = append(texts, m.String())
	}
	if len(texts) == 0 {
		return ""
	}
	return ": the value is not in the manifest, write it there: " + strings.Join(texts, "; ")
}
