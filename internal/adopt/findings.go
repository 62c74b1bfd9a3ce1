package adopt

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
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

// addReasons adds the reasons why the driver cannot be adopted, the more basic ones before others. possible are the names
// of its driver, before are the plans of other csi-attachers.
func (p *Plan) addReasons(in input, possible map[string]string, before []Plan) {
	w, pod := p.Workload, p.Workload.Template.Spec
	p.no(Modes, w.Namespace == "", "the manifest names no namespace: add --namespace")
	for what, wrong := range map[string][]string{ // names become parts of paths, commands and objects
		"metadata.name": validation.IsDNS1123Subdomain(w.GetName()), "namespace": validation.IsDNS1123Label(cmp.Or(w.Namespace, "default")),
		"namespace of the Lease": validation.IsDNS1123Label(cmp.Or(p.LeaseNamespace(), "default")), "container name": validation.IsDNS1123Label(p.Container.Name)} {
		p.no(Modes, len(wrong) > 0, "%s: %s", what, strings.Join(wrong, "; "))
	}
	p.no(Modes, p.Driver != "" && !driverNameForm.MatchString(p.Driver), "driver name %q: not a domain name of at most 63 letters, digits, '-' and '.'", p.Driver)
	p.no(Modes, p.Socket.problem == "" && p.shell == "" && !socketForm.MatchString(p.Socket.Path), "socket of --csi-address %q: not a path of letters, digits and the characters '/', '.', '_', '-', '@', '+', '=', ',', ':' and '~'", p.Socket.Path)
	for _, c := range w.containers() {
		ours := strings.HasPrefix(c.Name, basePrefix) || strings.HasPrefix(imageName(c), hubName) || c.Image == p.Options.Image || len(c.Command) > 0 && c.Command[0] == hubProgram
		p.no(Modes, ours, "container %s is csi-attach-hub already: pass the manifest from before adopt, as the chart or the vendor makes it, or original/manifest.yaml of the earlier folder", c.Name)
		p.no(Modes, strings.Contains(c.Image, "{{"), "container %s: image %s is a template: render it first, for example with helm template RELEASE CHART -n NAMESPACE", c.Name, c.Image)
	}
	maker := p.Options.managedBy(w.Object)
	for _, m := range in.makers() {
		if m.image == p.Container.Image && m.Source != w.Source {
			maker = fmt.Sprintf("%s %s makes this %s and undoes changes of it: %s", m.GetKind(), m.GetName(), w.GetKind(), p.Options.throughSetting(m.setting))
		}
	}
	p.no(Modes, maker != "", "%s", maker)
	windows := pod.OS != nil && pod.OS.Name == corev1.Windows || pod.NodeSelector["kubernetes.io/os"] == "windows"
	p.no(Modes, windows, "the Pod runs on Windows nodes, for which there is no hub: keep csi-attacher")
	if p.shell != "" {
		p.no(Modes, true, "the shell %s starts csi-attacher, so its flags are not known: write them as args of csi-attacher", p.shell)
		return
	}
	p.no(Modes, p.Socket.problem != "", "%s", p.Socket.problem)
	where := "no other container of the Pod has the volume %s with the socket"
	if p.Socket.ofNode() {
		where = "the socket is that of the node plugin, in a folder of the node (volume %s)"
	}
	instead := "; use --mode drop-in"
	if maker != "" { // that says no too
		instead = ""
	}
	p.no(proxyOnly, p.Socket.problem == "" && len(p.servers()) == 0, where+": the driver runs in another Pod%s", p.Socket.Volume.Name, instead)
	p.no(proxyOnly, p.Socket.Mount.SubPathExpr != "", "csi-attacher mounts its socket with subPathExpr: write subPath in the manifest, or use --mode drop-in")
	attach, found := in.attaches[p.Driver]
	p.no(Modes, found && !attach, "CSIDriver %s has attachRequired: false, so Kubernetes asks nobody to attach its volumes: csi-attacher can be removed without a hub", p.Driver)
	lock := p.Flags.LockType
	if old := oldAttacher.FindStringSubmatch(p.Container.Image); lock == "" && old != nil {
		lock = "of csi-attacher " + old[1]
	}
	p.no(Modes, p.Flags.LeaderElection && lock != "" && lock != "leases", "csi-attacher takes a lock that is no Lease (%s), so nothing keeps it apart from the hub: update csi-attacher to 2.0 or later first", lock)
	p.no(proxyOnly, p.Flags.Kubeconfig != "", "csi-attacher has --kubeconfig=%s: it can work for another cluster than the one it runs in; use --mode drop-in, which keeps the flag, or run the hub in the other cluster", p.Flags.Kubeconfig)
	u := p.RunsAs()
	p.no(Modes, !u.Known(), "csi-attacher has runAsNonRoot and no runAsUser, so its user is that of its image: add --run-as-user ID, or --openshift if the cluster chooses it")
	p.no(Modes, u.NonRoot && u.UID != nil && *u.UID == 0, "csi-attacher has runAsNonRoot and user 0, so the kubelet does not start it: correct the manifest")
	p.no(proxyOnly, p.Port == 0, "no port is free for the proxy: add --port")
	c := p.Container.Command
	p.no(dropInOnly, len(c) > 0 && !attacherImage.MatchString(path.Base(c[0])), "command: the hub's image has no %s", strings.Join(c, " "))
	p.no(dropInOnly, len(p.Flags.Unknown) > 0, "the hub does not start with the arguments %s of csi-attacher: look up what they do, and remove them from the manifest", strings.Join(p.Flags.Unknown, ", "))
	p.no(dropInOnly, w.Replicas > 1 && !p.Flags.LeaderElection, "%d replicas without --leader-election would all work for the driver", w.Replicas)
	for _, first := range before {
		p.no(Modes, p.Driver != "" && p.LeaseName() == first.LeaseName(), "%s is for the driver %s: this name gives the same Lease and finalizer, so the hub can serve only one of the two; name the drivers with --driver CONTAINER=NAME", first.Attacher, first.Driver)
	}
	why := "the manifest does not say the driver's name"
	if len(possible) > 0 {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(possible)) {
			names = append(names, fmt.Sprintf("%s (%s)", name, possible[name]))
		}
		why = "several names of the driver are possible: " + strings.Join(names, ", ")
	}
	p.no(proxyOnly, p.Driver == "" && p.Adoptable(), "%s: add --driver NAME; `kubectl get csidrivers` prints the names of drivers", why)
}

// addNotes adds the notes about a driver that can be adopted.
func (p *Plan) addNotes() {
	w := p.Workload
	surge := ""
	if w.SetsStrategy() {
		surge = "; its rolling update gets maxSurge: 0, else a new Pod would wait for a node where the ports are free"
	}
	p.note(proxyOnly, p.HostNetwork(), "the Pod is on the network of its node: ports %d and %d must be free on each node that it can run on (--port chooses others); network policies do not hold for it, only the certificate keeps others out%s", p.Port, p.Health(), surge)
	p.note(proxyOnly, !p.HostNetwork() && len(p.policies) > 0, "NetworkPolicy %s says what may connect to the Pod, so NetworkPolicy %s adds only port %d, for the hub", strings.Join(p.policies, ", "), p.Base(), p.Port)
	p.note(proxyOnly, !p.HostNetwork() && len(p.policies) == 0, "NetworkPolicy %s keeps all other ports of the Pod open; if another policy selects the Pod for Ingress, pass its manifest as INPUT too, or ports that it closes are opened (kubectl -n %s get networkpolicy)", p.Base(), w.Namespace)
	left := slices.Concat(p.Flags.Other, p.Flags.Unknown)
	p.note(proxyOnly, len(left) > 0, "flags of csi-attacher that are not carried over: %s", strings.Join(left, "; "))
	p.note(proxyOnly, len(p.roles) > 0, "when you will not go back, remove what csi-attacher alone needs: %s", strings.Join(p.roles, "; "))
	_, openShift := w.Template.Annotations["openshift.io/required-scc"]
	p.note(Modes, p.takesRoot() && openShift, "OpenShift chooses the user of a container (openshift.io/required-scc): if the cluster is OpenShift, add --openshift")
	p.note(proxyOnly, p.User.Privileged, "csi-attacher is privileged, and what replaces it is not: on nodes that enforce SELinux it may not open the socket; watch the driver in mode observe")
	p.note(dropInOnly, true, "no other hub may have the driver in its configuration. csi-attacher's rights suffice; for Events and for changes of attachRequired the ServiceAccount also needs to create and patch events in namespace default, and to list and watch csidrivers")
}

// driverNameForm is that of the CSI specification: a domain name in any case.
var driverNameForm = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9.]{0,61}[A-Za-z0-9])?$`)

// socketForm has the characters that mean the same in a file's name, in a URL and in the text of a DriverConfig.
var socketForm = regexp.MustCompile(`^/[-A-Za-z0-9/._@+=,:~]+$`)

// oldAttacher are images of csi-attacher before 2.0.
var oldAttacher = regexp.MustCompile(`attacher:(v?[01]\.\d[^@]*)`)
