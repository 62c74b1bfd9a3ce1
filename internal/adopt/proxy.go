package adopt

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// Folders of the proxy's container.
	proxyTLS   = "/attach-hub/tls"
	proxyHubCA = "/attach-hub/ca"
)

// proxyPatch adds the proxy to the driver's Pod.
func (p Plan) proxyPatch(t *templatePatch) {
	if t.Metadata.Labels == nil {
		t.Metadata.Labels = map[string]string{proxyLabel: "true"}
	}
	t.Metadata.Labels[p.DriverLabel()] = "true"
	t.Spec.Containers = append(t.Spec.Containers, p.proxyContainer())
	if len(t.Spec.Volumes) == 0 {
		t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: hubCA, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: hubCA}}}})
	}
	t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: p.Base() + "-tls", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: p.Base() + "-tls", DefaultMode: ptr(p.user().keyMode())}}})
}

// proxyContainer returns the container that forwards calls of the hub to the driver's socket. It opens the socket as
// csi-attacher does: the same mount, the same path, the same user.
func (p Plan) proxyContainer() corev1.Container {
	listen, health := fmt.Sprintf(":%d", p.Ports.Listen), fmt.Sprintf(":%d", p.Ports.Health)
	readiness := &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(p.Ports.Health)}
	ports := []corev1.ContainerPort{{Name: portName(p.Ports.Listen), ContainerPort: p.Ports.Listen}}
	if p.HostNetwork() {
		// Everybody on the network reaches the node's ports: no network policy holds for them.
		health = fmt.Sprintf("127.0.0.1:%d", p.Ports.Health)
		readiness.Host = "127.0.0.1"
	}
	return corev1.Container{
		Name:            p.Base(),
		Image:           p.Options.Image,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args: []string{"proxy", "--listen=" + listen, "--health-listen=" + health, "--target=unix://" + p.Socket.Path,
			"--tls-cert=" + proxyTLS + "/tls.crt", "--tls-key=" + proxyTLS + "/tls.key", "--client-ca=" + proxyHubCA + "/ca.crt",
			"--allow-san=" + hubName},
		Ports: ports,
		// Not of the driver: a restart of the proxy does not bring the driver back.
		LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(p.Ports.Listen)}},
			PeriodSeconds: 10, FailureThreshold: 6},
		// Of the driver's last Probe: the Service leads to Pods that are ready.
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: readiness}, TimeoutSeconds: 5, PeriodSeconds: 10, FailureThreshold: 3},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("20Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
		},
		SecurityContext: p.securityContext(),
		VolumeMounts: []corev1.VolumeMount{p.Socket.Mount,
			{Name: p.Base() + "-tls", MountPath: proxyTLS, ReadOnly: true},
			{Name: hubCA, MountPath: proxyHubCA, ReadOnly: true}},
	}
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
	if p.Container.SecurityContext != nil {
		s.RunAsNonRoot = p.Container.SecurityContext.RunAsNonRoot
	}
	return s
}

// portName returns a name that is unique among the proxies of a Pod, of at most 15 characters.
func portName(port int32) string { return fmt.Sprintf("attach-hub-%d", port%10000) }

func ptr[T any](v T) *T { return &v }
