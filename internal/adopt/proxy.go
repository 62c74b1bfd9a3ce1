package adopt

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// Folders of the proxy's container.
	proxyTLS   = "/attach-hub/tls"
	proxyHubCA = "/attach-hub/ca"
)

// proxyPatch adds the proxy to the driver's Pod. It is an ordinary container also beside a driver in initContainers:
// such a driver ends after the ordinary containers, so the calls in flight end before.
func (p Plan) proxyPatch(t *templatePatch) {
	if t.Metadata.Labels == nil {
		t.Metadata.Labels = map[string]string{proxyLabel: "true"}
		t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: hubCA, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: hubCA}}}})
	}
	t.Metadata.Labels[p.DriverLabel()] = "true"
	t.add(p.proxyContainer(), p.Workload, p.pod)
	t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: p.Base() + "-tls", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: p.Base() + "-tls", DefaultMode: ptr(p.user().keyMode())}}})
}

// proxyContainer returns the container that forwards calls of the hub to the driver's socket. It opens the socket as
// csi-attacher does: the same volume, the same path, the same user.
func (p Plan) proxyContainer() corev1.Container {
	listen, health := fmt.Sprintf(":%d", p.Ports.Listen), fmt.Sprintf(":%d", p.Ports.Health)
	readiness := &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(p.Ports.Health)}
	if p.HostNetwork() {
		// Everybody on the network reaches the node's ports: no network policy holds for them.
		health = fmt.Sprintf("127.0.0.1:%d", p.Ports.Health)
		readiness.Host = "127.0.0.1"
	}
	c := corev1.Container{Name: p.Base(), Image: p.Options.Image, ImagePullPolicy: corev1.PullIfNotPresent, SecurityContext: p.securityContext(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError}
	c.Env = []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: "48MiB"}} // three quarters of the limit of memory
	c.Args = []string{"--listen=" + listen, "--health-listen=" + health, "--target=unix://" + p.Socket.Path,
		"--tls-cert=" + proxyTLS + "/tls.crt", "--tls-key=" + proxyTLS + "/tls.key", "--client-ca=" + proxyHubCA + "/ca.crt",
		"--allow-san=" + hubName, p.shutdownGrace()}
	c.Ports = []corev1.ContainerPort{{Name: portName(p.Ports.Listen), ContainerPort: p.Ports.Listen}}
	// Not of the driver: a restart of the proxy does not bring the driver back.
	c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(p.Ports.Listen)}},
		PeriodSeconds: 10, FailureThreshold: 6}
	// Of the driver's last Probe: the Service leads to Pods that are ready.
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: readiness}, TimeoutSeconds: 5, PeriodSeconds: 10, FailureThreshold: 3}
	c.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
	}
	c.VolumeMounts = []corev1.VolumeMount{p.socketMount(p.Socket.Mount.MountPath),
		{Name: p.Base() + "-tls", MountPath: proxyTLS, ReadOnly: true},
		{Name: hubCA, MountPath: proxyHubCA, ReadOnly: true}}
	return c
}

// socketMount returns the mount of the socket's folder. A read-only mount suffices to connect, and mount propagation,
// which only privileged containers may have, is of no use for a socket.
func (p Plan) socketMount(at string) corev1.VolumeMount {
	m := p.Socket.Mount
	return corev1.VolumeMount{Name: m.Name, MountPath: path.Clean(at), SubPath: m.SubPath, ReadOnly: true}
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
func (p Plan) shutdownGrace() string {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if seconds := p.Workload.Template.Spec.TerminationGracePeriodSeconds; seconds != nil {
		grace = *seconds
	}
	return fmt.Sprintf("--shutdown-grace=%ds", min(30, max(grace/2, grace-5)))
}

// portName returns a name that is unique among the proxies of a Pod, of at most 15 characters.
func portName(port int32) string { return fmt.Sprintf("attach-hub-%d", port%10000) }

func ptr[T any](v T) *T { return &v }
