package adopt

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// observing ends the name of the ConfigMap that the hub of a Pod has before csi-attacher is removed.
const observing = "-observe"

// hubPatch adds a hub to the Pod of the drivers, with all in mode observe. It is named after the first of them.
func hubPatch(plans []Plan, t *templatePatch) {
	first := plans[0]
	c := first.hubContainer()
	for _, p := range plans {
		c.VolumeMounts = append(c.VolumeMounts, p.socketMount(p.hubSocketFolder()))
	}
	c.VolumeMounts = append(c.VolumeMounts, first.tokenMounts()...)
	t.add(c, first.Workload, plans)
	t.Spec.Volumes = append(t.Spec.Volumes, first.hubVolume(observing))
}

// hubActivePatch removes each csi-attacher and gives the hub the drivers.yaml with mode active. As part of the
// Pods the mode comes and goes with them: a hub beside a csi-attacher never is active, also on the way back.
func hubActivePatch(plans []Plan, t *templatePatch) {
	for _, p := range plans {
		p.removeAttacher(t)
	}
	t.Spec.Volumes = append(t.Spec.Volumes, plans[0].hubVolume(""))
}

func (p Plan) hubVolume(suffix string) corev1.Volume {
	return corev1.Volume{Name: p.Base(), VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: p.Base() + suffix}}}}
}

// hubContainer returns the hub of the Pod, without the sockets.
func (p Plan) hubContainer() corev1.Container {
	c := p.container()
	c.Args = []string{"--config=/etc/csi-attach-hub/drivers.yaml", p.shutdownGrace(10), "--logging-format=json"}
	probe := corev1.HTTPGetAction{Port: intstr.FromInt32(p.Ports.Listen), Scheme: corev1.URISchemeHTTPS}
	if p.HostNetwork() { // the kubelet reaches the loopback address, and others on the network must not
		c.Args = append(c.Args, "--http-endpoint="+loopback(p.Ports.Health))
		probe = corev1.HTTPGetAction{Port: intstr.FromInt32(p.Ports.Health), Host: "127.0.0.1"}
		// By it the scheduler keeps two Pods with this port off one node.
		c.Ports = []corev1.ContainerPort{{Name: portName(p.Ports.Health), ContainerPort: p.Ports.Health, HostPort: p.Ports.Health, HostIP: "127.0.0.1"}}
	} else {
		c.Args = append(c.Args, fmt.Sprintf("--http-endpoint=:%d", p.Ports.Listen), "--http-authorization", "--health-addr="+loopback(p.Ports.Health))
		c.Ports = []corev1.ContainerPort{{Name: portName(p.Ports.Listen), ContainerPort: p.Ports.Listen}}
	}
	get := func(path string) corev1.ProbeHandler {
		at := probe
		at.Path = path
		return corev1.ProbeHandler{HTTPGet: &at}
	}
	// As in the hub's own Deployment.
	c.StartupProbe = &corev1.Probe{ProbeHandler: get("/livez"), PeriodSeconds: 2, TimeoutSeconds: 5, FailureThreshold: 60}
	c.LivenessProbe = &corev1.Probe{ProbeHandler: get("/livez"), PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 6}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: get("/readyz"), PeriodSeconds: 5, TimeoutSeconds: 5, FailureThreshold: 2}
	c.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(minHubMemory)},
	}
	c.Env = append(c.Env,
		corev1.EnvVar{Name: "POD_NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}},
		corev1.EnvVar{Name: "GOMEMLIMIT", Value: "450MiB"})
	c.VolumeMounts = []corev1.VolumeMount{{Name: p.Base(), MountPath: "/etc/csi-attach-hub", ReadOnly: true}}
	return c
}

// tokenFolder has the token of the ServiceAccount.
const tokenFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

// tokenMounts returns the mounts of csi-attacher in place of those that the API server adds: none in most Pods.
func (p Plan) tokenMounts() []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	for _, m := range p.Container.VolumeMounts {
		if at := path.Clean(m.MountPath); at == tokenFolder || strings.HasPrefix(at, tokenFolder+"/") {
			mounts = append(mounts, m)
		}
	}
	return mounts
}

// hubSocketFolder is where the hub of the Pod has the volume with the driver's socket: the containers of several
// drivers often have different volumes at one path.
func (p Plan) hubSocketFolder() string { return "/csi/" + p.Driver }

// hubSocket is the path of the driver's socket in the hub of the Pod.
func (p Plan) hubSocket() string {
	return p.hubSocketFolder() + strings.TrimPrefix(p.Socket.Path, strings.TrimSuffix(path.Clean(p.Socket.Mount.MountPath), "/"))
}

// sidecarHubVerdict returns why no hub can stand beside the driver, and what the user must know of it.
func (p Plan) sidecarHubVerdict() (no, notes []string) {
	if program := p.generatedBy(); program != "" {
		no = append(no, fmt.Sprintf("%s makes this %s and restores it after a change: use --mode drop-in", program, p.Workload.GetKind()))
	}
	if !p.Flags.LeaderElection && p.Options.WithoutLeaderElection {
		no = append(no, "csi-attacher runs without --leader-election: in one Pod with the hub only a Lease keeps them apart while the Pods change; add --leader-election to csi-attacher, or use --mode drop-in")
	}
	if automount := p.Workload.Template.Spec.AutomountServiceAccountToken; automount != nil && !*automount && len(p.tokenMounts()) == 0 {
		no = append(no, fmt.Sprintf("automountServiceAccountToken is false and csi-attacher mounts no token at %s, so the hub could not reach the Kubernetes API: remove automountServiceAccountToken: false, or mount a projected token there", tokenFolder))
	}
	if p.HostNetwork() {
		text := fmt.Sprintf("the Pod is on the network of its node: port %d must be free on each node that it can run on (--port chooses others)", p.Ports.Health)
		if p.Workload.GetKind() == "Deployment" {
			text += "; a rolling update needs a node where this port is free, or maxSurge: 0"
		}
		notes = append(notes, text)
	}
	return no, append(notes,
		fmt.Sprintf("the hub serves the drivers of this Pod only; no other hub may have %s in its drivers.yaml", cmp.Or(p.Driver, "the driver")))
}

// FirstOfPod reports whether the objects of the Pod's hub are named after this driver.
func (p Plan) FirstOfPod() bool { return len(p.pod) > 0 && p.pod[0].Driver == p.Driver }

// PodDriversFile returns the drivers.yaml of the Pod's hub, with each line indented as in a ConfigMap.
func (p Plan) PodDriversFile(mode string) string {
	var b strings.Builder
	b.WriteString(driversHead + "drivers:\n")
	for _, one := range p.pod {
		b.WriteString(one.entry(mode))
	}
	return "    " + strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\n", "\n    ")
}
