package adopt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// steps writes the steps of the drivers of a folder, with the commands to copy.
type steps struct {
	plans  []Plan // that can be adopted
	write  string // command that writes the files; "" if they are written
	dir    string // of the files
	plugin string // of Helm 4
	n      int
}

// newSteps returns the steps of the plans that can be adopted.
func newSteps(plans []Plan, dir, write string) steps {
	s := steps{write: write, dir: dir, plugin: folderName(plans)}
	for _, p := range plans {
		if p.Adoptable() {
			s.plans = append(s.plans, p)
		}
	}
	return s
}

// step writes the next step.
func (s *steps) step(b *page, title string, commands ...string) {
	s.n++
	b.step(s.n, title)
	if len(commands) > 0 {
		b.code("sh", true, s.atHub(commands)...)
	}
}

// atHub adds the namespace of the hub to the commands that look for it, unless they find it by themselves or by its address.
func (s *steps) atHub(commands []string) []string {
	namespace := s.plans[0].HubNamespace()
	if namespace == DefaultHubNamespace || s.mode() != ModeProxy {
		return commands
	}
	all := slices.Clone(commands)
	for i, c := range all {
		if rest, is := strings.CutPrefix(c, hubStatus); is {
			all[i] = hubStatus + " --hub-namespace=" + namespace + rest
		}
	}
	return all
}

// each returns the commands of each plan. Those that are the same for several plans are there once.
func (s *steps) each(commands func(Plan) []string) []string {
	var all []string
	seen := map[string]bool{}
	for _, p := range s.plans {
		block := commands(p)
		if text := strings.Join(block, "\n"); !seen[text] {
			seen[text] = true
			all = append(all, block...)
		}
	}
	return all
}

// all writes the steps of the folder once: each of them moves all its drivers.
func (s steps) all(b *page) {
	level, title := 2, "Steps"
	if len(s.plans) > 1 {
		level, title = 1, "Steps of all drivers of the folder"
	}
	b.heading(level, title)
	steps := s.mode().Steps()
	review := "kubectl diff -k " + quoted(s.dir) + "/" + string(steps[0])
	if s.write != "" {
		s.step(b, "Write the files, and review them. Nothing changes in the cluster.", s.write, review)
	} else {
		s.step(b, "Review the files. Nothing changes in the cluster.", review)
	}
	switch s.mode() {
	case ModeDropIn:
		s.dropIn(b)
	case ModeSidecarHub:
		s.sidecarHub(b)
	default:
		s.proxy(b)
	}
}

func (s *steps) mode() Mode { return s.plans[0].Options.Mode }

// moves says that a step is not about one driver alone, "" for one driver.
func (s *steps) moves() string {
	if names := driverNames(s.plans); len(names) > 1 {
		return fmt.Sprintf(" This moves all drivers of the folder: %s.", strings.Join(names, ", "))
	}
	return ""
}

// removed says what the removal of csi-attacher means.
func (s *steps) removed() string {
	wait := slices.MaxFunc(s.plans, func(x, y Plan) int { return int(x.LeaseWait() - y.LeaseWait()) }).LeaseWait()
	return fmt.Sprintf("Remove csi-attacher. The hub takes the Lease as soon as it is free, which can take %s.", Duration(wait)) + s.moves() + goneText
}

// dropIn writes the steps to the hub in the place of csi-attacher.
func (s *steps) dropIn(b *page) {
	title := "Replace the image." + s.replaced()
	if s.plans[0].deployer != "" {
		title = "Replace the image in the variable. The deployer then makes csi-attacher anew."
	}
	s.step(b, title+s.moves()+s.makerHint(), s.rolledOut(StepActive)...)
	verify := s.each(func(p Plan) []string {
		reference, container := p.reference(), p.Container.Name
		if p.deployer != "" {
			reference, container = p.made.reference, p.made.container
		}
		return []string{fmt.Sprintf("kubectl -n %s logs %s -c %s --tail=20", p.Workload.Namespace, reference, container)}
	})
	verify = append(verify, "kubectl get volumeattachments -o wide")
	for _, p := range s.plans {
		if p.Flags.LeaderElection && p.Driver != "" {
			verify = append(verify, p.holder())
		}
	}
	s.step(b, "Verify: the container runs, and new Pods get their volumes.", verify...)
	s.step(b, "The way back: put the old image back."+s.moves(), slices.Concat(s.original(), s.each(Plan.rollout))...)
}

// sidecarHub writes the steps to a hub in the driver's Pod.
func (s *steps) sidecarHub(b *page) {
	s.step(b, "Observe: put the hub beside the driver. csi-attacher goes on working."+s.replaced()+s.moves()+s.makerHint(), s.rolledOut(StepObserve)...)
	for _, group := range byWorkload(s.plans) { // each has a hub of its own
		first := group[0]
		s.step(b, "Open the way to the hub. The command runs until you end it.",
			fmt.Sprintf("kubectl -n %s port-forward %s %d", first.Workload.Namespace, first.reference(), first.Ports.Health))
		s.step(b, `Check in a second terminal. Go on when the hub has seen attaches and detaches and each item of checklist has "ok": true.`,
			fmt.Sprintf(`csi-attach-hub status --server http://127.0.0.1:%d -o json | jq '.drivers[] | {name, observed, checklist}'`, first.Ports.Health))
	}
	s.step(b, s.removed(), slices.Concat(s.rolledOut(StepActive), s.each(Plan.gone))...)
	s.step(b, "Verify: the hub's Pod holds the Lease, and new Pods get their volumes.", s.each(Plan.verify)...)
	s.step(b, "The way back, to the hub that observes: csi-attacher comes back."+s.moves(), s.rolledOut(StepObserve)...)
	s.step(b, "To remove everything, after the way back:", slices.Concat(s.original(), s.each(Plan.rollout), []string{s.deleteObjects()})...)
}

// rolledOut returns the commands that bring the workloads to a step, and wait for their Pods.
func (s *steps) rolledOut(step Step) []string {
	return slices.Concat(s.apply(step), s.each(Plan.rollout))
}

// deleteObjects deletes the objects beside the workload. Helm has deleted its own.
func (s *steps) deleteObjects() string {
	return fmt.Sprintf("kubectl delete --ignore-not-found -f %s/observe/objects.yaml", quoted(s.dir))
}

// reference names the workload for kubectl.
func (p Plan) reference() string {
	return strings.ToLower(p.Workload.GetKind()) + "/" + p.Workload.GetName()
}

// verify prints who holds the Lease, and the VolumeAttachments.
func (p Plan) verify() []string {
	return []string{p.holder(), "kubectl get volumeattachments -o wide | grep " + p.Driver}
}

// holder prints who holds the Lease. Where csi-attacher has none, the hub makes one in its own namespace.
func (p Plan) holder() string {
	namespace := p.LeaseNamespace()
	if !p.Flags.LeaderElection && p.Options.Mode == ModeProxy {
		namespace = p.HubNamespace()
	}
	return fmt.Sprintf(`kubectl -n %s get lease %s -o jsonpath='{.spec.holderIdentity}{"\n"}'`, namespace, registry.LeaseName(p.Driver))
}
