package adopt

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

var (
	proxyOnly  = []Mode{ModeProxy}
	dropInOnly = []Mode{ModeDropIn}
)

// no adds a reason why the driver cannot be adopted in these modes, and what to do instead, if it holds.
func (p *Plan) no(modes []Mode, holds bool, format string, args ...any) {
	if holds && slices.Contains(modes, p.Options.Mode) {
		p.No = append(p.No, terminal.Line(fmt.Sprintf(format, args...))) // it has parts of manifests
	}
}

// note adds what the user must know, decide or look up in these modes, if it holds.
func (p *Plan) note(modes []Mode, holds bool, format string, args ...any) {
	if holds && slices.Contains(modes, p.Options.Mode) {
		p.Notes = append(p.Notes, terminal.Line(fmt.Sprintf(format, args...)))
	}
}

// reasons adds the reasons why the driver cannot be adopted, the more basic ones before others. possible are the names
// of a driver whose name is not known.
func (p *Plan) reasons(in input, possible named) {
	w, pod, image := p.Workload, p.Workload.Template.Spec, p.Options.Image
	for what, wrong := range map[string][]string{ // names become parts of paths, commands and objects
		"metadata.name": validation.IsDNS1123Subdomain(w.GetName()), "namespace": validation.IsDNS1123Label(w.Namespace),
		"namespace of the Lease": validation.IsDNS1123Label(p.LeaseNamespace()), "container name": validation.IsDNS1123Label(p.Container.Name)} {
		p.no(Modes, len(wrong) > 0, "%s: %s", what, strings.Join(wrong, "; "))
	}
	p.no(Modes, p.Driver != "" && !driverNameForm.MatchString(p.Driver), "driver name %q: not a domain name of at most 63 letters, digits, '-' and '.'", p.Driver)
	p.no(Modes, p.Socket.problem == "" && p.shell == "" && !socketForm.MatchString(p.Socket.Path), "socket of --csi-address %q: not a path of letters, digits and the characters '/', '.', '_', '-', '@', '+', '=', ',', ':' and '~'", p.Socket.Path)
	for _, c := range w.containers() {
		ours := strings.HasPrefix(c.Name, basePrefix) || strings.HasPrefix(imageName(c), hubName) || c.Image == image || len(c.Command) > 0 && c.Command[0] == hubProgram
		p.no(Modes, ours, "container %s is csi-attach-hub already: pass the manifest from before adopt, as the chart or the vendor makes it, or original/manifest.yaml of the earlier folder", c.Name)
	}
	p.no(Modes, !isWorkload(w.Object), "csi-attacher is in a %s of %s, and adopt changes only a Deployment, StatefulSet or DaemonSet of apps/v1: move the driver's controller to one of these first", w.GetKind(), w.GetAPIVersion())
	for _, d := range in.deployers() {
		p.no(Modes, d.image == p.Container.Image && d.workload.Source != w.Source, "%s %s makes this %s and undoes changes of it: %s", d.workload.GetKind(), d.workload.GetName(), w.GetKind(), d.advice(image))
	}
	manager := managedBy(w.Object)
	p.no(Modes, manager != "", "%s", manager)
	windows := pod.OS != nil && pod.OS.Name == corev1.Windows || pod.NodeSelector["kubernetes.io/os"] == "windows" || pod.NodeSelector["beta.kubernetes.io/os"] == "windows"
	p.no(Modes, windows, "the Pod runs on Windows nodes, for which there is no hub: keep csi-attacher")
	if p.shell != "" {
		p.no(Modes, true, "the shell %s starts csi-attacher, so its flags are not known: write them as args of csi-attacher", p.shell)
		return
	}
	p.no(Modes, p.Socket.problem != "", "%s", p.Socket.problem)
	elsewhere := "no other container of the Pod has the volume %s with the socket: the driver runs in another Pod; use --mode drop-in"
	if p.Socket.ofNode() {
		elsewhere = "the socket is that of the node plugin, in a folder of the node (volume %s): the driver runs in another Pod; use --mode drop-in"
	}
	p.no(proxyOnly, p.Socket.problem == "" && len(p.servers()) == 0, elsewhere, p.Socket.Volume.Name)
	p.no(proxyOnly, p.Socket.Mount.SubPathExpr != "", "csi-attacher mounts its socket with subPathExpr: write subPath in the manifest, or use --mode drop-in")
	d, found := in.csiDriver(p.Driver)
	p.no(Modes, found && !d.attach, "CSIDriver %s has attachRequired: false, so Kubernetes asks nobody to attach its volumes: csi-attacher can be removed without a hub", p.Driver)
	lock := p.Flags.LockType
	if old := oldAttacher.FindStringSubmatch(p.Container.Image); lock == "" && old != nil {
		lock = "of csi-attacher " + old[1]
	}
	p.no(Modes, p.Flags.LeaderElection && lock != "" && lock != "leases", "csi-attacher takes a lock that is no Lease (%s), so nothing keeps it apart from the hub: update csi-attacher to 2.0 or later first", lock)
	p.no(proxyOnly, p.Flags.Kubeconfig != "", "csi-attacher has --kubeconfig=%s: it can work for another cluster than the one it runs in; use --mode drop-in, which keeps the flag, or run the hub in the other cluster", p.Flags.Kubeconfig)
	u := p.user()
	p.no(Modes, !u.Known(), "csi-attacher has runAsNonRoot and no runAsUser, so its user is that of its image: add --run-as-user ID, or --openshift if the cluster chooses it")
	p.no(Modes, u.NonRoot && u.UID != nil && *u.UID == 0, "csi-attacher has runAsNonRoot and user 0, so the kubelet does not start it: correct the manifest")
	p.no(proxyOnly, p.Ports.Listen == 0, "no port is free for the proxy: add --port")
	c := p.Container.Command
	p.no(dropInOnly, len(c) > 0 && !attacherImage.MatchString(path.Base(c[0])), "command: the hub's image has no %s", strings.Join(c, " "))
	p.no(dropInOnly, len(p.Flags.Unknown) > 0, "the hub does not start with the arguments %s of csi-attacher: look up what they do, and remove them from the manifest", strings.Join(p.Flags.Unknown, ", "))
	p.no(dropInOnly, w.Replicas > 1 && !p.Flags.LeaderElection, "%d replicas without --leader-election would all work for the driver", w.Replicas)
	why := "the manifest does not say the driver's name"
	if len(possible) > 0 {
		why = "several names of the driver are possible: " + possible.String()
	}
	p.no(proxyOnly, p.Driver == "" && len(p.No) == 0, "%s: add --driver NAME; `kubectl get csidrivers` prints the names of drivers", why)
}

// notes adds the notes about a driver that can be adopted.
func (p *Plan) notes(in input) {
	w := p.Workload
	if m := find(renderers, w.Object); m != nil {
		p.note(Modes, true, "%s (%s) and undoes changes that are made in the cluster alone: %s", m.who, m.key, m.what)
	}
	p.note(proxyOnly, p.withoutLease(), "csi-attacher runs without --leader-election and takes no Lease, so the order of the steps alone keeps it apart from the hub: csi-attacher's Pods end, the hub sees in mode observe that nobody else attaches, and then the driver is made active. Nothing is attached or detached in between, about a minute. The way back is in the opposite order")
	p.note(Modes, p.onDelete(), "the update strategy is OnDelete: no step takes effect before the Pods are deleted; the steps delete all Pods of the workload")
	p.note(proxyOnly, p.Flags.LeaderElection && p.LeaseWait().Seconds() > 15, "the hub waits up to %s for the Lease after csi-attacher has ended: nothing is attached in that time", Duration(p.LeaseWait()))
	endsFirst := w.GetKind() != "Deployment" || w.strategy() == "Recreate"
	p.note(dropInOnly, !p.Flags.LeaderElection && !endsFirst, "csi-attacher runs without --leader-election: during the rolling update the old and the new Pod can both work, as in each update before")
	p.note(proxyOnly, w.Replicas != 1, "the driver has %s: the Service keeps the hub to one of them; after that one is lost, calls that it has begun can still run while the hub calls another", p.replicas())
	p.note(proxyOnly, p.HostNetwork(), "the Pod is on the network of its node: ports %d and %d must be free on each node that it can run on (--port chooses others); network policies do not hold for it, only the certificate keeps others out", p.Ports.Listen, p.Ports.Health)
	p.note(proxyOnly, p.setsStrategy(), "the Pod is on the network of its node, so maxSurge: 0 and maxUnavailable: 1 are set: a rolling update that starts a new Pod first would wait for a node where its ports are free")
	p.note(proxyOnly, !p.HostNetwork() && !p.OpensOtherPorts(), "NetworkPolicy %s says what may connect to the Pod, so NetworkPolicy %s adds only port %d, for the hub", strings.Join(p.policies, ", "), p.Base(), p.Ports.Listen)
	p.note(proxyOnly, !p.HostNetwork() && p.OpensOtherPorts(), "NetworkPolicy %s keeps all other ports of the Pod open; if another policy selects the Pod for Ingress, pass its manifest as INPUT too, or ports that it closes are opened (kubectl -n %s get networkpolicy)", p.Base(), w.Namespace)
	others := otherDefaults(p.Flags)
	p.note(proxyOnly, others != "", "csi-attacher runs with its defaults of these flags, and the hub with its own: %s", others)
	p.note(proxyOnly, len(p.Flags.Other) > 0, "flags of csi-attacher that are not carried over: %s", strings.Join(p.Flags.Other, "; "))
	p.note(proxyOnly, len(p.Flags.Unknown) > 0, "the hub leaves out arguments that it does not know: look up what they do: %s", strings.Join(p.Flags.Unknown, ", "))
	p.note(Modes, len(p.unknown) > 0, "the arguments of csi-attacher have values that are not in the manifest, and that the hub does not need: %s", strings.Join(p.unknown, ", "))
	p.note(proxyOnly, p.Flags.HTTPEndpoint != "", "the metrics of csi-attacher on %s end with it, and so does the probe of /healthz/leader-election: scrape the hub instead, and remove what leads there (Service, ServiceMonitor, kube-rbac-proxy)", p.Flags.HTTPEndpoint)
	for _, s := range w.Template.Spec.ImagePullSecrets {
		p.note(Modes, true, "the Pod pulls images with the imagePullSecret %s: it must allow to pull %s too", s.Name, p.Options.Image)
	}
	asRoot := p.User.UID == nil && !p.User.NonRoot && !p.Options.OpenShift && p.Options.RunAsUser == nil
	_, openShift := w.Template.Annotations["openshift.io/required-scc"]
	openShift = openShift || strings.HasPrefix(w.Namespace, "openshift-")
	p.note(Modes, asRoot && openShift, "the cluster is OpenShift, which chooses the user of a container: add --openshift")
	p.note(Modes, asRoot && !openShift && !strings.HasPrefix(p.Container.Image, "registry.k8s.io/sig-storage/"), "the manifest names no user: root is taken, the user of csi-attacher's image; if this image has another, add --run-as-user")
	p.note(proxyOnly, p.User.Privileged, "csi-attacher is privileged, and what replaces it is not: on nodes that enforce SELinux it may not open the socket; watch the driver in mode observe")
	p.note(proxyOnly, len(p.Secrets) == 0 && !in.hasClass(p.Driver), "the manifest does not say whether attaching needs a Secret; add --secret NAMESPACE/NAME for each controllerPublishSecretRef that PersistentVolumes of the driver have")
	p.note(proxyOnly, p.Options.Certificates == CertExisting, "make Secret %[1]s-tls in namespace %[2]s with the keys tls.crt and tls.key: a certificate for the DNS name %[1]s; write the CA that signed it to %[3]s.crt in the folder", p.Base(), w.Namespace, p.Driver)
	p.note(dropInOnly, p.User.UID == nil && !p.Options.OpenShift, "runAsUser: %d is added, because the hub's image has the user 65532", p.user().ID())
	p.note(dropInOnly, p.littleMemory(), "limits.memory is raised from %s to %s: the hub needs about 100Mi for 2,500 PersistentVolumes and 220Mi for 100,000", p.Container.Resources.Limits.Memory(), minHubMemory)
	p.note(dropInOnly, true, "csi-attacher's rights suffice; for Events and for changes of attachRequired the ServiceAccount also needs to create and patch events in namespace default, and to list and watch csidrivers")
	p.note(dropInOnly, true, "no other hub may have the driver in its configuration")
	p.note(Modes, w.GetNamespace() == "", "the manifest names no namespace: %s is assumed. Set another with --namespace", w.Namespace)
	p.note(Modes, !strings.Contains(p.Options.Image, "/"), "the image is %s, without a registry: name the image that the nodes can pull with --image", p.Options.Image)
}

// driverNameForm is that of the CSI specification: a domain name in any case.
var driverNameForm = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9.]{0,61}[A-Za-z0-9])?$`)

// socketForm has the characters that mean the same in a file's name, in a URL and in the text of a DriverConfig.
var socketForm = regexp.MustCompile(`^/[-A-Za-z0-9/._@+=,:~]+$`)

// oldAttacher are images of csi-attacher before 2.0.
var oldAttacher = regexp.MustCompile(`attacher:(v?[01]\.\d[^@]*)`)

// otherDefaults returns which settings change because csi-attacher has other defaults than the hub.
func otherDefaults(f Flags) string {
	hub := registry.DefaultSettings()
	var texts []string
	for _, d := range []struct{ key, flag, attacher, hub string }{
		{"timeout", "--timeout", "15s", Duration(hub.Timeout)},
		{"workers", "--worker-threads", "10", fmt.Sprint(hub.Workers)},
		{"kubeAPI.qps", "--kube-api-qps", "5", "no limit"},
	} {
		if !slices.ContainsFunc(f.Settings, func(s Setting) bool { return s.Key == d.key }) {
			texts = append(texts, fmt.Sprintf("%s (csi-attacher %s, hub %s)", d.flag, d.attacher, d.hub))
		}
	}
	return strings.Join(texts, ", ")
}
