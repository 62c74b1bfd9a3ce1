package adopt

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// container returns what every container of ours beside a driver has.
func (p Plan) container() corev1.Container {
	c := corev1.Container{Name: p.Base(), Image: p.Options.Image, ImagePullPolicy: corev1.PullIfNotPresent, SecurityContext: p.securityContext(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError}
	if p.Socket.Mount.SubPathExpr != "" {
		c.Env = namedBy(p.Socket.Mount.SubPathExpr, p.Container.Env)
	}
	return c
}

// namedBy returns the variables that a text names, and those that their values name, in their order. Others are not for
// our container: they can be Secrets.
func namedBy(text string, all []corev1.EnvVar) []corev1.EnvVar {
	var needed []corev1.EnvVar
	for i := len(all) - 1; i >= 0; i-- { // a value can name only variables before its own
		if e := all[i]; strings.Contains(text, "$("+e.Name+")") {
			needed = append(needed, e)
			text += e.Value
		}
	}
	slices.Reverse(needed)
	return needed
}

// socketMount returns the mount of the socket's folder. A read-only mount suffices to connect, and mount propagation,
// which only privileged containers may have, is of no use for a socket.
func (p Plan) socketMount(at string) corev1.VolumeMount {
	m := p.Socket.Mount
	return corev1.VolumeMount{Name: m.Name, MountPath: path.Clean(at), SubPath: m.SubPath, SubPathExpr: m.SubPathExpr, ReadOnly: true}
}

// securityContext returns that of a container of ours beside the driver: the user who may open the socket, and no right
// beyond that.
func (p Plan) securityContext() *corev1.SecurityContext {
	u := p.user()
	s := &corev1.SecurityContext{
		RunAsUser: u.UID, RunAsGroup: u.GID, SELinuxOptions: u.SELinux,
		AllowPrivilegeEscalation: ptr(false), ReadOnlyRootFilesystem: ptr(true),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if s.RunAsUser == nil && !p.Options.OpenShift {
		s.RunAsUser = ptr(u.ID()) // the image of the hub has another user
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
	if s == nil || s.Privileged != nil && *s.Privileged || s.Capabilities == nil {
		return true
	}
	dropped := slices.Contains(s.Capabilities.Drop, "ALL") || slices.Contains(s.Capabilities.Drop, "DAC_OVERRIDE")
	return !dropped || slices.Contains(s.Capabilities.Add, "DAC_OVERRIDE")
}

// shutdownGrace returns the flag that ends calls in flight some seconds before the kubelet kills the Pod.
func (p Plan) shutdownGrace(reserve int64) string {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if seconds := p.Workload.Template.Spec.TerminationGracePeriodSeconds; seconds != nil {
		grace = *seconds
	}
	return fmt.Sprintf("--shutdown-grace=%ds", min(30, max(grace/2, grace-reserve)))
}

func loopback(port int32) string { return fmt.Sprintf("127.0.0.1:%d", port) }
