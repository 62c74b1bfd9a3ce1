package adopt

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// note is what the user must know, decide or look up.
type note struct {
	modes []Mode
	text  func(in input, p Plan) string // "" if there is nothing
}

var allNotes = []note{
	{Modes, func(_ input, p Plan) string {
		if m := find(renderers, p.Workload.Object); m != nil {
			return fmt.Sprintf("%s (%s) and undoes changes that are made in the cluster alone: %s", m.who, m.key, m.what)
		}
		if p.Workload.NotApplied && p.Options.Mode != ModeDropIn {
			return "`kubectl apply` did not make this object: it warns at step observe, and can remove csi-attacher at step active only if it has applied step observe before"
		}
		return ""
	}},
	{Modes, func(_ input, p Plan) string {
		if !p.onDelete() || p.deployer != "" {
			return ""
		}
		return "the update strategy is OnDelete: no step takes effect before the Pods are deleted; the steps delete all Pods of the workload"
	}},
	{besideAttacher, func(_ input, p Plan) string {
		if p.LeaseWait() <= 15*time.Second || !p.Flags.LeaderElection {
			return ""
		}
		return fmt.Sprintf("the hub waits up to %s for the Lease after csi-attacher has ended: nothing is attached in that time", Duration(p.LeaseWait()))
	}},
	{besideAttacher, func(_ input, p Plan) string {
		if p.Flags.LeaderElection || !p.Options.WithoutLeaderElection {
			return ""
		}
		return "no Lease keeps csi-attacher apart from the hub: make the driver active only after no Pod has a csi-attacher any more, and go back in the opposite order"
	}},
	{[]Mode{ModeDropIn}, func(_ input, p Plan) string {
		if p.Flags.LeaderElection || p.Workload.GetKind() != "Deployment" { // others end the old Pod first
			return ""
		}
		return "csi-attacher runs without --leader-election: during the rolling update the old and the new Pod can both work, as in each update before"
	}},
	{[]Mode{ModeProxy}, func(_ input, p Plan) string {
		if p.Workload.Replicas == 1 {
			return ""
		}
		replicas := fmt.Sprintf("%d replicas", p.Workload.Replicas)
		if p.Workload.Replicas == 0 {
			replicas = "a replica on each of its nodes"
		}
		return fmt.Sprintf("the driver has %s: the Service keeps the hub to one of them; after that one is lost, calls that it has begun can still run while the hub calls another", replicas)
	}},
	{[]Mode{ModeProxy}, func(_ input, p Plan) string {
		if !p.HostNetwork() {
			return ""
		}
		return fmt.Sprintf("the Pod is on the network of its node: ports %d and %d must be free on each node that it can run on (--port chooses others); network policies do not hold for it, only the certificate keeps others out", p.Ports.Listen, p.Ports.Health)
	}},
	{besideAttacher, func(_ input, p Plan) string {
		if !p.setsStrategy() {
			return ""
		}
		return "the Pod is on the network of its node, so maxSurge: 0 and maxUnavailable: 1 are set: a rolling update that starts a new Pod first would wait for a node where its ports are free"
	}},
	{[]Mode{ModeProxy}, policyNote},
	{besideAttacher, func(_ input, p Plan) string { return otherDefaults(p.Flags) }},
	{besideAttacher, func(_ input, p Plan) string { return p.entryWarnings() }},
	{Modes, func(_ input, p Plan) string {
		var texts []string
		for _, m := range p.unknown {
			texts = append(texts, m.String())
		}
		if len(texts) == 0 {
			return ""
		}
		return "the arguments of csi-attacher have values that are not in the manifest, and that the hub does not need: " + strings.Join(texts, "; ")
	}},
	{besideAttacher, func(in input, p Plan) string { return in.scraped(p) }},
	{Modes, func(_ input, p Plan) string {
		var names []string
		for _, s := range p.Workload.Template.Spec.ImagePullSecrets {
			names = append(names, s.Name)
		}
		if len(names) == 0 {
			return ""
		}
		return fmt.Sprintf("the Pod pulls images with imagePullSecrets %s: they must allow to pull %s too", strings.Join(names, ", "), p.Options.Image)
	}},
	{Modes, func(_ input, p Plan) string {
		if p.attacherUnknown() || p.User.UID != nil || p.User.NonRoot || p.Options.OpenShift || p.Options.RunAsUser != nil {
			return ""
		}
		if isOpenShift(p.Workload) {
			return "the cluster is OpenShift, which chooses the user of a container: add --openshift"
		}
		if strings.HasPrefix(p.Container.Image, "registry.k8s.io/sig-storage/") {
			return ""
		}
		return "the manifest names no user: root is taken, the user of csi-attacher's image; if this image has another, add --run-as-user"
	}},
	{besideAttacher, func(_ input, p Plan) string {
		if !p.User.Privileged {
			return ""
		}
		return "csi-attacher is privileged, and what replaces it is not: on nodes that enforce SELinux it may not open the socket; watch the driver in mode observe"
	}},
	{besideAttacher, func(in input, p Plan) string {
		if len(p.Secrets) > 0 || p.Workload.Source.File == cluster || in.hasClass(p.Driver) {
			return ""
		}
		return fmt.Sprintf("the manifest does not say whether attaching needs a Secret; add --secret NAMESPACE/NAME for each that this prints: kubectl get pv -o jsonpath='{range .items[?(@.spec.csi.driver==%q)]}{.spec.csi.controllerPublishSecretRef}{\"\\n\"}{end}' | sort -u", p.Driver)
	}},
}

// notes returns the notes of a plan.
func (in input) notes(p Plan) []string {
	var all []string
	for _, n := range allNotes {
		if !slices.Contains(n.modes, p.Options.Mode) {
			continue
		}
		if text := n.text(in, p); text != "" {
			all = append(all, text)
		}
	}
	return all
}

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
	if len(texts) == 0 {
		return ""
	}
	return "csi-attacher runs with its defaults of these flags, and the hub with its own: " + strings.Join(texts, ", ")
}

// entryWarnings returns what the hub warns of when it reads the entry.
func (p Plan) entryWarnings() string {
	config, err := registry.Parse("drivers.yaml", []byte(driversHead+"drivers:\n"+p.entry("observe")))
	if err != nil {
		return fmt.Sprintf("the hub cannot read the entry as it is: %v", err)
	}
	var texts []string
	for _, w := range config.Warnings() {
		texts = append(texts, strings.TrimPrefix(w.Path, "drivers[0].")+": "+w.Message)
	}
	if len(texts) == 0 {
		return ""
	}
	return "the hub warns of settings of this entry: " + strings.Join(texts, "; ")
}

func isOpenShift(w *Workload) bool {
	_, scc := w.Template.Annotations["openshift.io/required-scc"]
	return scc || strings.HasPrefix(w.Namespace, "openshift-")
}
