package adopt

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// minHubMemory is the limit of the hub's own Deployment.
const minHubMemory = "512Mi"

// DropIn returns what puts the hub in place of csi-attacher. All else stays: flags, leader election, probes.
func (p Plan) DropIn() map[string]any {
	change := map[string]any{"image": p.Options.Image}
	if p.User.UID == nil && !p.Options.OpenShift {
		change["securityContext"] = map[string]any{"runAsUser": p.RunsAs().ID()}
	}
	args := p.Container.Args
	if command := p.Container.Command; len(command) > 0 {
		change["command"] = []string{hubProgram}
		args = slices.Concat(command[1:], args)
	}
	if p.Flags.Address == "" { // by this flag the hub knows that it stands for a csi-attacher
		args = append(slices.Clone(args), "--csi-address="+p.Socket.Path)
	}
	if !slices.Equal(args, p.Container.Args) {
		change["args"] = args
	}
	if limit := p.Container.Resources.Limits.Memory(); !limit.IsZero() && limit.Cmp(resource.MustParse(minHubMemory)) < 0 {
		change["resources"] = map[string]any{"limits": map[string]any{"memory": minHubMemory}}
	}
	return change
}

// defaultContainer is read by kubectl logs and exec.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// DefaultContainer returns the container for the annotation, "" if it has one. kustomize puts our container first, where
// kubectl would take it for the driver.
func (f folder) DefaultContainer() string {
	template := f.Workload.Template
	for i, c := range template.Spec.Containers {
		attaches := slices.ContainsFunc(f.Plans, func(p Plan) bool { return p.Container.Name == c.Name })
		if template.Annotations[defaultContainer] == "" && !attaches && (i == 0 || !isSidecar(c)) { // the first, or the driver in place of a csi-attacher
			return c.Name
		}
	}
	return ""
}

// MountPath is where csi-attacher mounts the volume of the socket.
func (p Plan) MountPath() string { return path.Clean(p.Socket.Mount.MountPath) }

// SecurityContext returns that of a container of ours beside the driver: the user who may open the socket, and no right
// beyond that.
func (p Plan) SecurityContext() *corev1.SecurityContext {
	u := p.RunsAs()
	s := &corev1.SecurityContext{
		RunAsUser: u.UID, RunAsGroup: u.GID, SELinuxOptions: u.SELinux,
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if s.RunAsUser == nil && !p.Options.OpenShift {
		s.RunAsUser = new(u.ID()) // the image of the hub has another user
	}
	if s.RunAsUser != nil && *s.RunAsUser == 0 && p.overridesModes() {
		// The driver may have another user. csi-attacher opens its socket as root by this capability.
		s.Capabilities.Add = []corev1.Capability{"DAC_OVERRIDE"}
	}
	if p.Container.SecurityContext != nil {
		s.RunAsNonRoot = p.Container.SecurityContext.RunAsNonRoot
	}
	return s
}

// overridesModes reports whether csi-attacher, as root, may open files of others: container runtimes give this
// capability unless the manifest drops it.
func (p Plan) overridesModes() bool {
	s := p.Container.SecurityContext
	if s == nil || p.User.Privileged || s.Capabilities == nil {
		return true
	}
	dropped := slices.Contains(s.Capabilities.Drop, "ALL") || slices.Contains(s.Capabilities.Drop, "DAC_OVERRIDE")
	return !dropped || slices.Contains(s.Capabilities.Add, "DAC_OVERRIDE")
}

// Grace returns after how many seconds the proxy ends calls in flight: some before the kubelet kills the Pod.
func (p Plan) Grace() int64 {
	grace := ptr.Deref(p.Workload.Template.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	return min(30, max(grace/2, grace-5))
}

// PortName returns a name that is unique among the proxies of a Pod, of at most 15 characters.
func (p Plan) PortName() int32 { return p.Port % 10000 }
