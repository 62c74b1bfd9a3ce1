package adopt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Arguments are those of the command adopt, without its output, for the commands that the user copies.
type Arguments struct {
	Inputs, Flags []string
	// AsCalled names the program in command lines as the user calls it. nil: it stays csi-attach-hub.
	AsCalled func(text string) string
}

// command returns the command line with an output.
func (a Arguments) command(output string) string {
	line := shellLine(slices.Concat([]string{"csi-attach-hub", "adopt"}, a.Inputs, a.Flags, []string{"-o", output}))
	if slices.Contains(a.Inputs, "-") {
		return "... | " + line
	}
	return line
}

// Text explains the plans: for each csi-attacher the verdict and what was found, then each step.
func Text(plans []Plan, a Arguments) []byte {
	b := page{asCalled: a.AsCalled}
	dir := folderName(plans)
	b.plans(plans, newSteps(plans, dir, a.command("kustomize="+dir)))
	if len(driverNames(plans)) > 0 {
		b.keep(plans, a)
	}
	return []byte(b.b.String())
}

// Readme is Text for the folder that Kustomize writes.
func Readme(plans []Plan, dir string) []byte {
	b := page{markdown: true}
	b.b.WriteString(writtenMarkdown)
	b.plans(plans, newSteps(plans, dir, ""))
	return []byte(b.b.String())
}

// plans writes all about the plans.
func (b *page) plans(plans []Plan, s steps) {
	for _, p := range plans {
		b.plan(p)
	}
	if len(s.plans) > 0 {
		s.all(b)
	}
}

// plan writes all about one csi-attacher.
func (b *page) plan(p Plan) {
	b.heading(1, fmt.Sprintf("%s %s/%s, container %s", p.Workload.GetKind(), p.Workload.Namespace, p.Workload.GetName(), cmp.Or(p.deployer, p.Container.Name)))
	b.facts(p)
	if notes := p.notes(); len(notes) > 0 {
		b.heading(2, "Notes")
		for _, note := range notes {
			text, command, has := strings.Cut(note, ": kubectl ")
			if !has {
				b.item(note)
				continue
			}
			b.item(text + ":")
			b.code("sh", true, "kubectl "+command) // a wrapped command cannot be copied
		}
	}
	b.flags(p)
	if p.Adoptable() && p.Options.Mode == ModeProxy {
		b.heading(2, "Entry of drivers.yaml")
		b.code("yaml", false, strings.Split(strings.TrimSuffix(p.Entry(), "\n"), "\n")...)
	}
}

// facts writes the verdict and what was found.
func (b *page) facts(p Plan) {
	if p.Adoptable() {
		b.fact("Can be adopted", "yes")
	} else {
		b.fact("Can be adopted", "no")
		for _, reason := range p.No {
			b.detail(reason)
		}
	}
	b.fact("Read from", p.Workload.Source.String())
	switch {
	case p.Driver == "":
		b.fact("Driver", "not known")
	case p.NameFrom == "":
		b.fact("Driver", p.Driver)
	default:
		b.fact("Driver", p.Driver+", from "+p.NameFrom)
	}
	if p.attacherUnknown() {
		return
	}
	socket := p.Socket.Path
	if p.Socket.Volume.Name != "" {
		socket += fmt.Sprintf(", in volume %s (%s) mounted at %s", p.Socket.Volume.Name, volumeKind(p.Socket.Volume), p.Socket.Mount.MountPath)
	}
	if socket != "" {
		b.fact("Socket", socket)
	}
	b.fact("User", p.user().String())
	b.fact("Replicas", p.replicas())
	network := "of the Pod"
	if p.HostNetwork() {
		network = "of the node"
	}
	if p.Options.Mode == ModeProxy && p.Adoptable() {
		network += fmt.Sprintf("; the proxy takes port %d, and %d for its health", p.Ports.Listen, p.Ports.Health)
	}
	b.fact("Network", network)
	lease := "none: csi-attacher runs without --leader-election"
	if p.Flags.LeaderElection {
		lease = fmt.Sprintf("in namespace %s; it can take %s until the Lease of an ended csi-attacher is free", p.LeaseNamespace(), Duration(p.LeaseWait()))
		if p.Driver != "" {
			lease = registry.LeaseName(p.Driver) + " " + lease
		}
	}
	b.fact("Lease", lease)
	if len(p.Secrets) > 0 {
		var names []string
		for _, s := range p.Secrets {
			names = append(names, s.String())
		}
		b.fact("Secrets", strings.Join(names, ", "))
	}
}

// notes returns the notes of a plan, with those that follow from the command line.
func (p Plan) notes() []string {
	notes := p.Notes
	if p.Workload.GetNamespace() == "" {
		notes = append(notes[:len(notes):len(notes)], fmt.Sprintf("the manifest names no namespace: %s is assumed. Set another with --namespace", p.Workload.Namespace))
	}
	if p.Adoptable() && !strings.Contains(p.Options.Image, "/") {
		notes = append(notes[:len(notes):len(notes)], fmt.Sprintf("the image is %s, without a registry: name the image that the nodes can pull with --image", p.Options.Image))
	}
	return notes
}

// notCarriedOver returns the flags of csi-attacher that are not in the entry. In its place they stay as they are.
func (p Plan) notCarriedOver() []OtherFlag {
	if p.Options.Mode == ModeDropIn {
		return nil
	}
	return p.Flags.Other
}

// flags writes the flags of csi-attacher that are not in the entry.
func (b *page) flags(p Plan) {
	if others := p.notCarriedOver(); len(others) > 0 {
		b.heading(2, "Flags of csi-attacher that are not carried over")
		for _, f := range others {
			b.item(f.Flag + ": " + f.Why)
		}
	}
	if len(p.Flags.Unknown) > 0 {
		b.heading(2, "Unknown flags, which no csi-attacher of kubernetes-csi has: look up what they do")
		for _, f := range p.Flags.Unknown {
			b.item(f)
		}
	}
}

// replicas returns how many replicas of the driver there are.
func (p Plan) replicas() string {
	if p.Workload.GetKind() == "DaemonSet" {
		return "one on each node of the DaemonSet"
	}
	return fmt.Sprint(p.Workload.Replicas)
}

// String describes a user.
func (u User) String() string {
	id := func(n *int64, unset string) string {
		if n == nil {
			return unset
		}
		return fmt.Sprint(*n)
	}
	unset := "not set, which is root"
	if !u.Known() {
		unset = "that of the image, not root"
	}
	text := id(u.UID, unset)
	if u.GID != nil {
		text += ", group " + id(u.GID, "")
	}
	if u.FSGroup != nil {
		text += ", fsGroup " + id(u.FSGroup, "")
	}
	return text
}

// volumeKind returns the kind of a volume, with the folder of a hostPath.
func volumeKind(v corev1.Volume) string {
	switch {
	case v.EmptyDir != nil && v.EmptyDir.Medium != "":
		return "emptyDir in " + strings.ToLower(string(v.EmptyDir.Medium))
	case v.EmptyDir != nil:
		return "emptyDir"
	case v.HostPath != nil:
		return "hostPath " + v.HostPath.Path
	}
	return "neither emptyDir nor hostPath"
}
