package adopt

import (
	"cmp"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// longhornVariable is where the driver deployer of Longhorn takes the image from, of the Deployment that it makes.
	longhornVariable = "CSI_ATTACHER_IMAGE"
	hubProgram       = "/csi-attach-hub" // in the image
	minHubMemory     = "512Mi"           // limit of the hub's own Deployment
)

// retired are flags of old releases of csi-attacher, and whether each takes a value. The hub refuses to start with them.
var retired = map[string]bool{"connection-timeout": true, "dummy": false, "leader-election-type": true, "leader-election-identity": true,
	"logtostderr": false, "alsologtostderr": false, "stderrthreshold": true, "log_backtrace_at": true, "log_dir": true, "log_file": true, "log_file_max_size": true,
	"skip_headers": false, "skip_log_headers": false, "add_dir_header": false, "one_output": false}

// deployers returns the workloads in which a container has the variable, each with the container.
func deployers(objects []Object, namespace string) []Attacher {
	var all []Attacher
	for _, o := range objects {
		if !slices.Contains(workloadKinds, o.GetKind()) {
			continue
		}
		w, err := newWorkload(o, namespace)
		if err != nil {
			continue // Find returns the error
		}
		for _, c := range w.Template.Spec.Containers {
			if makesAttacher(c) {
				all = append(all, Attacher{Workload: w, Container: c, Flags: Flags{LeaderElection: true}})
			}
		}
	}
	return all
}

func makesAttacher(c corev1.Container) bool {
	return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == longhornVariable })
}

// FindDeployers returns the workloads that make a csi-attacher which is not among the attachers: the chart of Longhorn has
// none. Such an Attacher has no socket.
func FindDeployers(objects []Object, namespace string, attachers []Attacher) []Attacher {
	return slices.DeleteFunc(deployers(objects, namespace), func(d Attacher) bool {
		return slices.ContainsFunc(attachers, func(a Attacher) bool { return a.Workload.Namespace == d.Workload.Namespace })
	})
}

// throughDeployer returns the plan with the workload that is changed in place of csi-attacher's: an operator such as
// Longhorn's driver deployer makes that Deployment anew.
func (p Plan) throughDeployer(in input) Plan {
	if w, variable := in.deployer(p); w != nil {
		for _, c := range w.containers() {
			if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == variable && e.Value == p.Container.Image }) {
				p.made.reference, p.made.container = p.reference(), p.Container.Name
				p.Workload, p.deployer, p.imageVariable = w, c.Name, variable
				return p
			}
		}
	}
	for _, d := range deployers(in.objects, p.Options.Namespace) {
		if d.Workload.Namespace == p.Workload.Namespace {
			p.made.reference, p.made.container = p.reference(), p.Container.Name
			if makesAttacher(p.Container) { // csi-attacher is not among the manifests: the names are Longhorn's
				p.made.reference, p.made.container = "deployment/csi-attacher", "csi-attacher"
			}
			p.Workload, p.deployer, p.imageVariable = d.Workload, d.Container.Name, longhornVariable
		}
	}
	return p
}

// dropInPatch puts the hub in place of csi-attacher. All else stays: flags, leader election, probes.
func (p Plan) dropInPatch(t *templatePatch) {
	if p.deployer != "" {
		change := map[string]any{"name": p.deployer, "env": []corev1.EnvVar{{Name: p.imageVariable, Value: rootImage(p.Options.Image)}}}
		if !slices.ContainsFunc(t.Spec.Containers, func(other any) bool { return reflect.DeepEqual(other, change) }) { // of another driver
			t.Spec.Containers = append(t.Spec.Containers, change)
		}
		return
	}
	change := map[string]any{"image": p.Options.Image}
	if u := p.user(); p.User.UID == nil && !p.Options.OpenShift {
		change["securityContext"] = map[string]any{"runAsUser": u.ID()}
	}
	if len(p.Container.Command) > 0 {
		change["command"] = []string{hubProgram}
	}
	if args, _ := p.hubArgs(); !slices.Equal(args, p.Container.Args) {
		change["args"] = args
	}
	if p.littleMemory() {
		change["resources"] = map[string]any{"limits": map[string]any{"memory": minHubMemory}}
	}
	p.changeAttacher(t, change)
}

// hubArgs returns the arguments of csi-attacher as the hub takes them, with their variables as they are written, and the
// arguments that it leaves out.
func (p Plan) hubArgs() (args, leftOut []string) {
	words := p.Container.Args
	if len(p.Container.Command) > 0 {
		words = slices.Concat(p.Container.Command[1:], words)
	}
	for i := 0; i < len(words); i++ {
		takesValue, isRetired := retired[flagName(words[i])]
		if !isRetired {
			args = append(args, words[i])
			continue
		}
		removed := words[i]
		if takesValue && !strings.Contains(removed, "=") && i+1 < len(words) {
			i++
			removed += " " + words[i]
		}
		leftOut = append(leftOut, removed)
	}
	if p.Flags.Address == "" {
		args = append(args, "--csi-address="+p.Socket.Path) // by this flag the hub knows that it stands for a csi-attacher
	}
	return args, leftOut
}

// flagName returns the name of a flag, "" of another argument.
func flagName(arg string) string {
	name, _, _ := strings.Cut(arg, "=")
	if !strings.HasPrefix(name, "-") {
		return ""
	}
	return strings.TrimLeft(name, "-")
}

// dropInVerdict returns why the hub's image does not work in place of csi-attacher's, and what else changes.
func (p Plan) dropInVerdict() (no, notes []string) {
	if p.deployer == "" && p.generatedBy() != "" {
		no = append(no, fmt.Sprintf("%s makes this %s and restores it after a change: set the variable %s of Deployment longhorn-driver-deployer to the variant of the hub's image that runs as root, %s (value image.csi.attacher of the chart), or pass that Deployment too",
			p.generatedBy(), p.Workload.GetKind(), longhornVariable, rootImage(p.Options.Image)))
	}
	if c := p.Container.Command; p.deployer == "" && len(c) > 0 && !attacherImage.MatchString(path.Base(c[0])) {
		no = append(no, fmt.Sprintf("command: the hub's image has no %s", c[0]))
	}
	for _, flag := range p.Flags.Unknown {
		if _, isRetired := retired[flagName(strings.Fields(flag + " ")[0])]; !isRetired {
			no = append(no, fmt.Sprintf("the hub does not start with the argument %s of csi-attacher, and no release of csi-attacher is known to have it: look up what it does, and remove it from the manifest", flag))
		}
	}
	_, leftOut := p.hubArgs()
	if p.deployer != "" {
		inContainers := slices.ContainsFunc(p.Workload.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == p.deployer })
		if !p.Workload.changeable() || !inContainers {
			no = append(no, fmt.Sprintf("%s makes the Deployment of csi-attacher and is no container of a Deployment, StatefulSet or DaemonSet of apps/v1: set its variable %s to the variant of the hub's image that runs as root, %s",
				p.Workload.Object, p.imageVariable, rootImage(p.Options.Image)))
		} else if why := managedBy(p.Workload.Object); why != "" {
			no = append(no, why)
		}
		if len(leftOut) > 0 {
			no = append(no, fmt.Sprintf("the hub does not start with the arguments %s, which are made with the Deployment", strings.Join(leftOut, ", ")))
		}
		notes = append(notes, fmt.Sprintf("%s makes the Deployment of csi-attacher, so its variable %s is changed, to the variant of the hub's image that runs as root: the tag must end in -root, or the digest must be that variant's", p.Workload.Object, p.imageVariable))
	} else if len(leftOut) > 0 {
		notes = append(notes, fmt.Sprintf("%s: removed, because the hub does not have these flags of old csi-attachers", strings.Join(leftOut, ", ")))
	}
	if p.deployer == "" && p.User.UID == nil && !p.Options.OpenShift {
		notes = append(notes, fmt.Sprintf("runAsUser: %d is added, because the hub's image has the user 65532", p.user().ID()))
	}
	if p.littleMemory() {
		notes = append(notes, fmt.Sprintf("limits.memory is raised from %s to %s: the hub needs about 100Mi for 2,500 PersistentVolumes and 220Mi for 100,000", p.Container.Resources.Limits.Memory(), minHubMemory))
	}
	if p.deployer == "" && p.Workload.Replicas > 1 && !p.Flags.LeaderElection {
		no = append(no, fmt.Sprintf("%d replicas without --leader-election would all work for the driver", p.Workload.Replicas))
	}
	return no, append(notes, "csi-attacher's rights suffice; for Events and for changes of attachRequired the ServiceAccount also needs what deploy/base/events.yaml and deploy/base/clusterrole.yaml grant",
		fmt.Sprintf("no other hub may have %s in its drivers.yaml", cmp.Or(p.Driver, "the driver")))
}

// littleMemory reports whether the limit of csi-attacher is below the hub's.
func (p Plan) littleMemory() bool {
	limit := p.Container.Resources.Limits.Memory()
	return p.deployer == "" && !limit.IsZero() && limit.Cmp(resource.MustParse(minHubMemory)) < 0
}

// rootImage returns the variant of an image that runs as root. The user must know that of a digest.
func rootImage(image string) string {
	if strings.Contains(image, "@") || strings.HasSuffix(image, "-root") || !strings.Contains(path.Base(image), ":") {
		return image
	}
	return image + "-root"
}
