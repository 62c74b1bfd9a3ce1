package adopt

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// reason is why a driver cannot be adopted.
type reason struct {
	modes []Mode // for which it holds
	// why returns the reason and what to do instead, "" if the reason does not hold.
	why func(in input, p Plan) string
}

// Without drop-in: a reason that lies in a second process beside csi-attacher, or in the network between hub and
// driver. The image swap has neither.
var besideAttacher = []Mode{ModeProxy, ModeSidecarHub}

// reasons are all reasons, the more basic first.
var reasons = []reason{
	{Modes, func(_ input, p Plan) string {
		if p.Workload.changeable() {
			return ""
		}
		return fmt.Sprintf("csi-attacher is in a %s of %s, and adopt changes only a Deployment, StatefulSet or DaemonSet of apps/v1: move the driver's controller to one of these first",
			p.Workload.GetKind(), p.Workload.GetAPIVersion())
	}},
	{Modes, func(_ input, p Plan) string { return managedBy(p.Workload.Object) }},
	{besideAttacher, func(in input, p Plan) string {
		if deployer, variable := in.deployer(p); deployer != nil {
			return fmt.Sprintf("%s %s makes this %s and undoes changes of it: use --mode drop-in, which is the image in variable %s of that %[1]s",
				deployer.GetKind(), deployer.GetName(), p.Workload.GetKind(), variable)
		}
		return ""
	}},
	{Modes, func(_ input, p Plan) string {
		if !isWindows(p.Workload.Template.Spec) {
			return ""
		}
		return "the Pod runs on Windows nodes, for which there is no hub: keep csi-attacher"
	}},
	{Modes, func(_ input, p Plan) string {
		if p.shell == "" {
			return ""
		}
		return fmt.Sprintf("the shell %s starts csi-attacher, so its flags are not known: write them as args of csi-attacher", p.shell)
	}},
	{Modes, func(_ input, p Plan) string { return p.Socket.problem }},
	{[]Mode{ModeProxy}, func(_ input, p Plan) string {
		if p.shell != "" || p.Socket.problem != "" || len(p.servers()) > 0 {
			return ""
		}
		if p.Socket.ofNode() {
			return fmt.Sprintf("the socket is that of the node plugin, in a folder of the node (volume %s): the driver runs in another Pod, on each node; use --mode drop-in", p.Socket.Volume.Name)
		}
		return fmt.Sprintf("no other container of the Pod has the volume %s with the socket: the driver runs in another Pod; use --mode drop-in", p.Socket.Volume.Name)
	}},
	{Modes, func(in input, p Plan) string {
		d, found := in.csiDriver(p.Driver)
		if !found || d.attach {
			return ""
		}
		return fmt.Sprintf("CSIDriver %s has attachRequired: false, so Kubernetes asks nobody to attach its volumes: csi-attacher can be removed without a hub", p.Driver)
	}},
	{besideAttacher, func(_ input, p Plan) string {
		if p.shell != "" || p.Flags.LeaderElection || p.Options.WithoutLeaderElection {
			return ""
		}
		return "csi-attacher runs without --leader-election, so no Lease keeps it apart from the hub: add the flag to csi-attacher first, or use --mode drop-in, or --without-leader-election if nobody attaches during the move"
	}},
	{Modes, func(_ input, p Plan) string {
		if !p.Flags.LeaderElection {
			return ""
		}
		if t := p.Flags.LockType; t != "" && t != "leases" {
			return fmt.Sprintf("csi-attacher takes a lock of type %q, not a Lease, so nothing keeps it apart from the hub: update csi-attacher to 2.0 or later first", t)
		}
		if p.Flags.LockType == "" && oldAttacher.MatchString(p.Container.Image) {
			return fmt.Sprintf("csi-attacher %s takes a lock that is no Lease, so nothing keeps it apart from the hub: update csi-attacher to 2.0 or later first", oldAttacher.FindStringSubmatch(p.Container.Image)[1])
		}
		return ""
	}},
	{besideAttacher, func(_ input, p Plan) string {
		if p.Flags.Kubeconfig == "" {
			return ""
		}
		return fmt.Sprintf("csi-attacher has --kubeconfig=%s: it can work for another cluster than the one it runs in; use --mode drop-in, which keeps the flag, or run the hub in the other cluster", p.Flags.Kubeconfig)
	}},
	{Modes, func(_ input, p Plan) string {
		if u := p.user(); !u.Known() {
			return "csi-attacher has runAsNonRoot and no runAsUser, so its user is that of its image: add --run-as-user ID, or --openshift if the cluster chooses it"
		} else if u.refused() {
			return "csi-attacher has runAsNonRoot and user 0, so the kubelet does not start it: correct the manifest"
		}
		return ""
	}},
	{[]Mode{ModeProxy}, func(_ input, p Plan) string {
		if p.Ports.Listen > 0 {
			return ""
		}
		return "no port is free for the proxy: add --port"
	}},
}

// verdict returns why a driver cannot be adopted in the mode of its plan, and what to do instead. It returns nothing if
// the driver can be adopted.
func (in input) verdict(p Plan, possible named) (no []string) {
	for _, r := range reasons {
		if !slices.Contains(r.modes, p.Options.Mode) {
			continue
		}
		if why := r.why(in, p); why != "" {
			no = append(no, why)
		}
	}
	if p.Driver == "" && len(no) == 0 && p.Options.Mode != ModeDropIn {
		why := "the manifest does not say the driver's name"
		if len(possible) > 0 {
			why = "several names of the driver are possible: " + possible.String()
		}
		ask := fmt.Sprintf("`/csi-attach-hub preflight --socket unix://%s` asks this driver, in a container with the image of the hub and the volume of the socket", p.Socket.Path)
		if commands := in.choices(p, possible); len(commands) > 0 {
			return []string{fmt.Sprintf("%s: add the flag of the right one: %s; %s", why, strings.Join(commands, ", or "), ask)}
		}
		no = append(no, fmt.Sprintf("%s: add --driver NAME; `kubectl get csidrivers` prints the names of drivers, and %s", why, ask))
	}
	return no
}

// choices returns the flag of the command for each possible name of a driver of the cluster: those given, else those of
// all CSIDriver objects. It returns nothing about a manifest.
func (in input) choices(p Plan, possible named) (flags []string) {
	if p.Workload.Source.File != cluster {
		return nil
	}
	names := slices.Sorted(maps.Keys(possible))
	if len(names) == 0 {
		names = in.candidates()
	}
	for _, name := range names {
		flags = append(flags, fmt.Sprintf("--driver %s/%s=%s", p.Workload.GetName(), p.Container.Name, name))
	}
	return flags
}

// oldAttacher are images of csi-attacher before 2.0.
var oldAttacher = regexp.MustCompile(`attacher:(v?[01]\.\d[^@]*)`)

func isWindows(pod corev1.PodSpec) bool {
	return pod.OS != nil && pod.OS.Name == corev1.Windows || pod.NodeSelector["kubernetes.io/os"] == "windows" || pod.NodeSelector["beta.kubernetes.io/os"] == "windows"
}

var sidecarImage = regexp.MustCompile(`(^|[-_/])(csi-|external-)?(provisioner|attacher|resizer|snapshotter|snapshot-metadata|health-monitor-controller|node-driver-registrar|livenessprobe|liveness-probe)([-_]|$)`)

// isSidecar reports whether a container is a sidecar of kubernetes-csi, which is a client of the socket.
func isSidecar(c corev1.Container) bool {
	serves := hasFlag(c, "endpoint") || slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "CSI_ENDPOINT" })
	return sidecarImage.MatchString(imageName(c)) && !serves
}

// deployer returns the workload of the input that makes the attacher's workload, with its variable for the image of
// csi-attacher, nil if there is none.
func (in input) deployer(p Plan) (*Workload, string) {
	for _, w := range in.workloads {
		for _, c := range w.containers() {
			for _, e := range c.Env {
				if strings.HasSuffix(e.Name, "ATTACHER_IMAGE") && e.Value == p.Container.Image && !w.same(p.Workload) {
					return w, e.Name
				}
			}
		}
	}
	return nil, ""
}
