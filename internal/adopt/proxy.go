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
		health = loopback(p.Ports.Health)
		readiness.Host = "127.0.0.1"
	}
	c := p.container()
	c.Args = []string{"proxy", "--listen=" + listen, "--health-listen=" + health, "--target=unix://" + p.Socket.Path,
		"--tls-cert=" + proxyTLS + "/tls.crt", "--tls-key=" + proxyTLS + "/tls.key", "--client-ca=" + proxyHubCA + "/ca.crt",
		"--allow-san=" + hubName, p.shutdownGrace(5)}
	c.Ports = []corev1.ContainerPort{{Name: portName(p.Ports.Listen), ContainerPort: p.Ports.Listen}}
	// Not of the driver: a restart of the proxy does not bring the driver back.
	c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(p.Ports.Listen)}},
		PeriodSeconds: 10, FailureThreshold: 6}
	// Of the driver's last Probe: the Service leads to Pods that are ready.
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: readiness}, TimeoutSeconds: 5, PeriodSeconds: 10, FailureThreshold: 3}
	c.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("20Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
	}
	c.VolumeMounts = []corev1.VolumeMount{p.socketMount(p.Socket.Mount.MountPath),
		{Name: p.Base() + "-tls", MountPath: proxyTLS, ReadOnly: true},
		{Name: hubCA, MountPath: proxyHubCA, ReadOnly: true}}
	return c
}

// proxyNotes returns what the user must make for the proxy.
func (p Plan) proxyNotes() []string {
	if p.Options.Certificates != CertExisting {
		return nil
	}
	return []string{fmt.Sprintf("make Secret %[1]s-tls in namespace %[2]s with the keys tls.crt and tls.key: a certificate for the DNS name %[1]s; the file /tls/%[3]s.crt of the hub is the authority that signed it",
		p.Base(), p.Workload.Namespace, p.Driver)}
}

// portName returns a name that is unique among the proxies of a Pod, of at most 15 characters.
func portName(port int32) string { return fmt.Sprintf("attach-hub-%d", port%10000) }

func ptr[T any](v T) *T { return &v }
