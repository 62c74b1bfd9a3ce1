package adopt

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// finding is one thing that can hold for a driver.
type finding struct {
	modes []Mode
	no    bool // it is why the driver cannot be adopted; else it is what the user must know, decide or look up
	// text says what holds and what to do, "" if it does not hold. possible are the names of a driver whose name is not known.
	text func(in input, p Plan, possible named) string
}

var (
	proxyOnly  = []Mode{ModeProxy}
	dropInOnly = []Mode{ModeDropIn}
)

// findings are all findings: first the reasons why a driver cannot be adopted, the more basic ones before others.
var findings = []finding{
	{Modes, true, func(_ input, p Plan, _ named) string {
		return unless(isWorkload(p.Workload.Object), "csi-attacher is in a %s of %s, and adopt changes only a Deployment, StatefulSet or DaemonSet of apps/v1: move the driver's controller to one of these first",
			p.Workload.GetKind(), p.Workload.GetAPIVersion())
	}},
	{Modes, true, func(in input, p Plan, _ named) string {
		for _, d := range in.deployers() {
			if d.image == p.Container.Image && d.workload.Source != p.Workload.Source {
				return fmt.Sprintf("%s %s makes this %s and undoes changes of it: %s", d.workload.GetKind(), d.workload.GetName(), p.Workload.GetKind(), d.advice(p.Options.Image))
			}
		}
		return ""
	}},
	{Modes, true, func(_ input, p Plan, _ named) string { return managedBy(p.Workload.Object) }},
	{Modes, true, func(_ input, p Plan, _ named) string {
		pod := p.Workload.Template.Spec
		windows := pod.OS != nil && pod.OS.Name == corev1.Windows || pod.NodeSelector["kubernetes.io/os"] == "windows" || pod.NodeSelector["beta.kubernetes.io/os"] == "windows"
		return unless(!windows, "the Pod runs on Windows nodes, for which there is no hub: keep csi-attacher")
	}},
	{Modes, true, func(_ input, p Plan, _ named) string {
		return unless(p.shell == "", "the shell %s starts csi-attacher, so its flags are not known: write them as args of csi-attacher", p.shell)
	}},
	{Modes, true, func(_ input, p Plan, _ named) string { return p.Socket.problem }},
	{proxyOnly, true, func(_ input, p Plan, _ named) string {
		if p.shell != "" || p.Socket.problem != "" || len(p.servers()) > 0 {
			return ""
		}
		where := "no other container of the Pod has the volume %s with the socket"
		if p.Socket.ofNode() {
			where = "the socket is that of the node plugin, in a folder of the node (volume %s)"
		}
		return fmt.Sprintf(where+": the driver runs in another Pod; use --mode drop-in", p.Socket.Volume.Name)
	}},
	{Modes, true, func(in input, p Plan, _ named) string {
		d, found := in.csiDriver(p.Driver)
		return unless(!found || d.attach, "CSIDriver %s has attachRequired: false, so Kubernetes asks nobody to attach its volumes: csi-attacher can be removed without a hub", p.Driver)
	}},
	{Modes, true, func(_ input, p Plan, _ named) string {
		lock := p.Flags.LockType
		if old := oldAttacher.FindStringSubmatch(p.Container.Image); lock == "" && old != nil {
			lock = "of csi-attacher " + old[1]
		}
		return unless(!p.Flags.LeaderElection || lock == "" || lock == "leases", "csi-attacher takes a lock that is no Lease (%s), so nothing keeps it apart from the hub: update csi-attacher to 2.0 or later first", lock)
	}},
	{proxyOnly, true, func(_ input, p Plan, _ named) string {
		return unless(p.Flags.Kubeconfig == "", "csi-attacher has --kubeconfig=%s: it can work for another cluster than the one it runs in; use --mode drop-in, which keeps the flag, or run the hub in the other cluster", p.Flags.Kubeconfig)
	}},
	{Modes, true, func(_ input, p Plan, _ named) string {
		if u := p.user(); !u.Known() {
			return "csi-attacher has runAsNonRoot and no runAsUser, so its user is that of its image: add --run-as-user ID, or --openshift if the cluster chooses it"
		} else if u.NonRoot && u.UID != nil && *u.UID == 0 {
			return "csi-attacher has runAsNonRoot and user 0, so the kubelet does not start it: correct the manifest"
		}
		return ""
	}},
	{proxyOnly, true, func(_ input, p Plan, _ named) string {
		return unless(p.Ports.Listen > 0, "no port is free for the proxy: add --port")
	}},
	{dropInOnly, true, func(_ input, p Plan, _ named) string {
		c := p.Container.Command
		return unless(len(c) == 0 || p.shell != "" || attacherImage.MatchString(path.Base(c[0])), "command: the hub's image has no %s", strings.Join(c, " "))
	}},
	{dropInOnly, true, func(_ input, p Plan, _ named) string {
		unknown := slices.DeleteFunc(slices.Clone(p.Flags.Unknown), func(flag string) bool {
			_, isRetired := retired[flagName(strings.Fields(flag + " ")[0])]
			return isRetired
		})
		return unless(len(unknown) == 0, "the hub does not start with the arguments %s of csi-attacher, and no release of csi-attacher is known to have them: look up what they do, and remove them from the manifest", strings.Join(unknown, ", "))
	}},
	{dropInOnly, true, func(_ input, p Plan, _ named) string {
		return unless(p.Workload.Replicas <= 1 || p.Flags.LeaderElection || p.shell != "", "%d replicas without --leader-election would all work for the driver", p.Workload.Replicas)
	}},
	{proxyOnly, true, func(_ input, p Plan, possible named) string {
		if p.Driver != "" || len(p.No) > 0 {
			return ""
		}
		why := "the manifest does not say the driver's name"
		if len(possible) > 0 {
			why = "several names of the driver are possible: " + possible.String()
		}
		return why + ": add --driver NAME; `kubectl get csidrivers` prints the names of drivers"
	}},

	{Modes, false, func(_ input, p Plan, _ named) string {
		if m := find(renderers, p.Workload.Object); m != nil {
			return fmt.Sprintf("%s (%s) and undoes changes that are made in the cluster alone: %s", m.who, m.key, m.what)
		}
		return ""
	}},
	{proxyOnly, false, func(_ input, p Plan, _ named) string {
		return unless(!p.withoutLease(), "csi-attacher runs without --leader-election and takes no Lease, so the order of the steps alone keeps it apart from the hub: csi-attacher's Pods end, the hub sees in mode observe that nobody else attaches, and then the driver is made active. Nothing is attached or detached in between, about a minute. The way back is in the opposite order")
	}},
	{Modes, false, func(_ input, p Plan, _ named) string {
		return unless(!p.onDelete(), "the update strategy is OnDelete: no step takes effect before the Pods are deleted; the steps delete all Pods of the workload")
	}},
	{proxyOnly, false, func(_ input, p Plan, _ named) string {
		return unless(!p.Flags.LeaderElection || p.Flags.LeaseDuration == 0 || p.LeaseWait().Seconds() <= 15, "the hub waits up to %s for the Lease after csi-attacher has ended: nothing is attached in that time", Duration(p.LeaseWait()))
	}},
	{dropInOnly, false, func(_ input, p Plan, _ named) string {
		endsFirst := p.Workload.GetKind() != "Deployment" || p.Workload.strategy() == "Recreate"
		return unless(p.Flags.LeaderElection || endsFirst, "csi-attacher runs without --leader-election: during the rolling update the old and the new Pod can both work, as in each update before")
	}},
	{proxyOnly, false, func(_ input, p Plan, _ named) string {
		replicas := fmt.Sprintf("%d replicas", p.Workload.Replicas)
		if p.Workload.GetKind() == "DaemonSet" {
			replicas = "a replica on each of its nodes"
		}
		return unless(p.Workload.Replicas == 1, "the driver has %s: the Service keeps the hub to one of them; after that one is lost, calls that it has begun can still run while the hub calls another", replicas)
	}},
	{proxyOnly, false, func(_ input, p Plan, _ named) string {
		return unless(!p.HostNetwork(), "the Pod is on the network of its node: ports %d and %d must be free on each node that it can run on (--port chooses others); network policies do not hold for it, only the certificate keeps others out", p.Ports.Listen, p.Ports.Health)
	}},
	{proxyOnly, false, func(_ input, p Plan, _ named) string {
		return unless(!p.setsStrategy(), "the Pod is on the network of its node, so maxSurge: 0 and maxUnavailable: 1 are set: a rolling update that starts a new Pod first would wait for a node where its ports are free")
	}},
	{proxyOnly, false, func(_ input, p Plan, _ named) string {
		if len(p.policies) > 0 && !p.HostNetwork() {
			return fmt.Sprintf("NetworkPolicy %s says what may connect to the Pod, so NetworkPolicy %s adds only port %d, for the hub", strings.Join(p.policies, ", "), p.Base(), p.Ports.Listen)
		}
		return unless(p.HostNetwork(), "NetworkPolicy %s keeps all other ports of the Pod open; if another policy selects the Pod for Ingress, pass its manifest as INPUT too, or ports that it closes are opened: kubectl -n %s get networkpolicy",
			p.Base(), p.Workload.Namespace)
	}},
	{proxyOnly, false, func(_ input, p Plan, _ named) string { return otherDefaults(p.Flags) }},
	{proxyOnly, false, func(_ input, p Plan, _ named) string { return p.fileWarnings() }},
	{proxyOnly, false, func(_ input, p Plan, _ named) string {
		return unless(len(p.Flags.Other) == 0, "flags of csi-attacher that are not carried over: %s", strings.Join(p.Flags.Other, "; "))
	}},
	{proxyOnly, false, func(_ input, p Plan, _ named) string {
		return unless(len(p.Flags.Unknown) == 0, "no csi-attacher of kubernetes-csi has these arguments, so the hub leaves them out: look up what they do: %s", strings.Join(p.Flags.Unknown, ", "))
	}},
	{Modes, false, func(_ input, p Plan, _ named) string {
		var texts []string
		for _, m := range p.unknown {
			texts = append(texts, m.String())
		}
		return unless(len(texts) == 0, "the arguments of csi-attacher have values that are not in the manifest, and that the hub does not need: %s", strings.Join(texts, "; "))
	}},
	{proxyOnly, false, func(_ input, p Plan, _ named) string {
		return unless(p.Flags.HTTPEndpoint == "", "the metrics of csi-attacher on %s end with it, and so does the probe of /healthz/leader-election: scrape the hub instead, and remove what leads there (Service, ServiceMonitor, kube-rbac-proxy)", p.Flags.HTTPEndpoint)
	}},
	{Modes, false, func(_ input, p Plan, _ named) string {
		var names []string
		for _, s := range p.Workload.Template.Spec.ImagePullSecrets {
			names = append(names, s.Name)
		}
		return unless(len(names) == 0, "the Pod pulls images with imagePullSecrets %s: they must allow to pull %s too", strings.Join(names, ", "), p.Options.Image)
	}},
	{Modes, false, func(_ input, p Plan, _ named) string {
		_, scc := p.Workload.Template.Annotations["openshift.io/required-scc"]
		switch {
		case p.User.UID != nil || p.User.NonRoot || p.Options.OpenShift || p.Options.RunAsUser != nil:
			return ""
		case scc || strings.HasPrefix(p.Workload.Namespace, "openshift-"):
			return "the cluster is OpenShift, which chooses the user of a container: add --openshift"
		}
		return unless(strings.HasPrefix(p.Container.Image, "registry.k8s.io/sig-storage/"), "the manifest names no user: root is taken, the user of csi-attacher's image; if this image has another, add --run-as-user")
	}},
	{proxyOnly, false, func(_ input, p Plan, _ named) string {
		return unless(!p.User.Privileged, "csi-attacher is privileged, and what replaces it is not: on nodes that enforce SELinux it may not open the socket; watch the driver in mode observe")
	}},
	{proxyOnly, false, func(in input, p Plan, _ named) string {
		return unless(len(p.Secrets) > 0 || in.hasClass(p.Driver), "the manifest does not say whether attaching needs a Secret; add --secret NAMESPACE/NAME for each that this prints: kubectl get pv -o jsonpath='{range .items[?(@.spec.csi.driver==%q)]}{.spec.csi.controllerPublishSecretRef}{\"\\n\"}{end}' | sort -u", p.Driver)
	}},
	{proxyOnly, false, func(_ input, p Plan, _ named) string {
		return unless(p.Options.Certificates != CertExisting, "make Secret %[1]s-tls in namespace %[2]s with the keys tls.crt and tls.key: a certificate for the DNS name %[1]s; write the CA that signed it to %[3]s.crt in the folder", p.Base(), p.Workload.Namespace, p.Driver)
	}},
	{dropInOnly, false, func(_ input, p Plan, _ named) string {
		_, leftOut := p.hubArgs()
		return unless(len(leftOut) == 0, "%s: removed, because the hub does not have these flags of old csi-attachers", strings.Join(leftOut, ", "))
	}},
	{dropInOnly, false, func(_ input, p Plan, _ named) string {
		return unless(p.User.UID != nil || p.Options.OpenShift, "runAsUser: %d is added, because the hub's image has the user 65532", p.user().ID())
	}},
	{dropInOnly, false, func(_ input, p Plan, _ named) string {
		return unless(!p.littleMemory(), "limits.memory is raised from %s to %s: the hub needs about 100Mi for 2,500 PersistentVolumes and 220Mi for 100,000", p.Container.Resources.Limits.Memory(), minHubMemory)
	}},
	{dropInOnly, false, func(_ input, p Plan, _ named) string {
		return "csi-attacher's rights suffice; for Events and for changes of attachRequired the ServiceAccount also needs to create and patch events in namespace default, and to list and watch csidrivers"
	}},
	{dropInOnly, false, func(_ input, p Plan, _ named) string {
		return "no other hub may have the driver in its configuration"
	}},
	{Modes, false, func(_ input, p Plan, _ named) string {
		return unless(p.Workload.GetNamespace() != "", "the manifest names no namespace: %s is assumed. Set another with --namespace", p.Workload.Namespace)
	}},
	{Modes, false, func(_ input, p Plan, _ named) string {
		return unless(strings.Contains(p.Options.Image, "/"), "the image is %s, without a registry: name the image that the nodes can pull with --image", p.Options.Image)
	}},
}

// unless returns a text if something does not hold, else "".
func unless(holds bool, format string, args ...any) string {
	if holds {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

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
	return unless(len(texts) == 0, "csi-attacher runs with its defaults of these flags, and the hub with its own: %s", strings.Join(texts, ", "))
}

// fileWarnings returns what the hub says when it reads the driver's file.
func (p Plan) fileWarnings() string {
	config, err := registry.Parse(p.fileName(), []byte(p.File()))
	if err != nil {
		return fmt.Sprintf("the hub cannot read the file as it is: %v", err)
	}
	var texts []string
	for _, w := range config.Warnings() {
		texts = append(texts, strings.TrimPrefix(w.Path, "drivers[0].")+": "+w.Message)
	}
	return unless(len(texts) == 0, "the hub warns of settings of this driver: %s", strings.Join(texts, "; "))
}
