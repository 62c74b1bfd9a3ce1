package adopt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// steps writes the steps of a driver, with the commands to copy.
type steps struct {
	write  string // command that writes the files; "" if they are written
	dir    string // of the files
	plugin string // of Helm 4
	n      int
}

// step writes the next step.
func (s *steps) step(b *page, title string, commands ...string) {
	s.n++
	b.step(s.n, title)
	if len(commands) > 0 {
		b.code("sh", true, atHub(b.hub, commands)...)
	}
}

// atHub adds the namespace of the hub to the commands that look for it, unless they find it by themselves.
func atHub(namespace string, commands []string) []string {
	const status = "csi-attach-hub status"
	if namespace == DefaultHubNamespace {
		return commands
	}
	all := slices.Clone(commands)
	for i, c := range all {
		if rest, is := strings.CutPrefix(c, status); is {
			all[i] = status + " --hub-namespace=" + namespace + rest
		}
	}
	return all
}

func (s steps) all(b *page, p Plan, all []Plan) {
	b.hub = p.HubNamespace()
	steps := p.Options.Mode.Steps()
	s.dir = quoted(s.dir)
	review := "kubectl diff -k " + s.dir + "/" + string(steps[0])
	if s.write != "" {
		s.step(b, "Write the files, and review them. Nothing changes in the cluster.", s.write, review)
	} else {
		s.step(b, "Review the files. Nothing changes in the cluster.", review)
	}
	switch p.Options.Mode {
	case ModeDropIn:
		s.dropIn(b, p)
	case ModeSidecarHub:
		s.sidecarHub(b, p, all)
	default:
		s.proxy(b, p, all)
	}
}

// proxy writes the steps to a hub in its own Deployment.
func (s *steps) proxy(b *page, p Plan, all []Plan) {
	hubNamespace := p.HubNamespace()
	s.step(b, "Give the namespace of the driver the authority of the hub. Without it, the Pod with the proxy does not start.",
		fmt.Sprintf(`kubectl -n %s get secret csi-attach-hub-ca -o jsonpath='{.data.tls\.crt}' \`, hubNamespace),
		"  | base64 -d > hub-ca.crt",
		fmt.Sprintf(`kubectl -n %s create configmap %s --from-file=ca.crt=hub-ca.crt --dry-run=client -o yaml \`, p.Workload.Namespace, hubCA),
		"  | kubectl apply --server-side --field-manager=attach-hub -f -")
	if p.Options.Certificates == CertExisting {
		s.step(b, fmt.Sprintf("Make Secret %s-tls with the keys tls.crt, a certificate for the DNS name %[1]s, and tls.key, its private key. Without the Secret, the Pod with the proxy does not start.", p.Base()),
			fmt.Sprintf("kubectl -n %s create secret tls %s-tls --cert=tls.crt --key=tls.key", p.Workload.Namespace, p.Base()))
	}
	s.step(b, "Observe: put the proxy beside the driver. csi-attacher goes on working. The Pods are replaced once."+s.makerHint(p),
		s.apply(p, StepObserve, p.rollout())...)
	s.driverAuthority(b, p)
	s.step(b, fmt.Sprintf("Add the entry above to drivers.yaml in the overlay of the hub, and the folder %s/hub to its components. Apply the overlay.", s.dir),
		"csi-attach-hub validate deploy/overlays/mine/drivers.yaml", hubApply)
	check := `Check, about a minute later. Go on when no check of preflight fails, and when the hub has seen attaches and detaches and each item of checklist has "ok": true.`
	if !p.Flags.LeaderElection {
		check += " The item lease stays false: csi-attacher takes no Lease."
	}
	s.step(b, check,
		"kubectl -n "+hubNamespace+" exec deploy/"+hubName+" -- /csi-attach-hub preflight --driver "+p.Driver,
		fmt.Sprintf(`csi-attach-hub status -o json | jq '.drivers[] | select(.name == "%s") | {observed, checklist}'`, p.Driver))
	s.handOver(b, p, all)
	s.step(b, "Verify: the driver is Ready, a replica of the hub holds the Lease, and new Pods get their volumes.",
		"csi-attach-hub status", p.holder(), "kubectl get volumeattachments -o wide | grep "+p.Driver)
	back := `The way back: csi-attacher comes back and waits for the Lease. Then set "mode: observe" in drivers.yaml, and the hub frees the Lease.`
	commands := s.apply(p, StepObserve, hubApply)
	if !p.Flags.LeaderElection {
		back = `The way back: set "mode: paused" in drivers.yaml. When status shows Paused, put csi-attacher back. Then set "mode: observe".`
		commands = slices.Concat([]string{hubApply, "csi-attach-hub status"}, s.apply(p, StepObserve, hubApply))
	}
	s.step(b, back, commands...)
	secrets := p.Base() + "-tls"
	if p.Options.Certificates != CertExisting {
		secrets = p.Base() + "-ca " + secrets
	}
	s.step(b, "To remove everything, after the way back: remove the entry from drivers.yaml and the folder from the components, and apply the overlay. Then:",
		slices.Concat([]string{hubApply}, s.original(p), []string{s.deleteObjects(),
			fmt.Sprintf("kubectl -n %s delete secret %s", p.Workload.Namespace, secrets),
			fmt.Sprintf("kubectl -n %s delete configmap %s   # if no other driver is served from this namespace", p.Workload.Namespace, hubCA),
			fmt.Sprintf(`kubectl -n %s create configmap %s --dry-run=client -o yaml \`, hubNamespace, driverCAs),
			fmt.Sprintf("  | kubectl apply --server-side --field-manager=%s -f -   # removes the key of this driver", p.Base())})...)
}

// driverAuthority writes the step that lets the hub trust the certificate of the proxy.
func (s *steps) driverAuthority(b *page, p Plan) {
	var read []string
	title := "Give the hub the authority of the driver. The keys of other drivers stay as they are."
	if p.Options.Certificates == CertExisting {
		title = fmt.Sprintf("Give the hub the authority that signed your certificate: write it to the file %s.crt, in PEM. It becomes the key of that name. The keys of other drivers stay as they are.", p.Driver)
	} else {
		read = []string{fmt.Sprintf(`kubectl -n %s get secret %s-ca -o jsonpath='{.data.tls\.crt}' \`, p.Workload.Namespace, p.Base()),
			fmt.Sprintf("  | base64 -d > %s.crt", p.Driver)}
	}
	s.step(b, title, append(read,
		fmt.Sprintf(`kubectl -n %s create configmap %s --from-file=%s.crt \`, p.HubNamespace(), driverCAs, p.Driver),
		fmt.Sprintf("  --dry-run=client -o yaml | kubectl apply --server-side --field-manager=%s -f -", p.Base()))...)
}

// hubApply applies the overlay of the hub.
const hubApply = "kubectl apply -k deploy/overlays/mine"

// handOver writes the steps from csi-attacher to the hub. The Lease keeps the two apart, else their order.
func (s *steps) handOver(b *page, p Plan, all []Plan) {
	remove := func(title string) {
		if names := driverNames(all); len(names) > 1 {
			title += fmt.Sprintf(" This changes all drivers of the folder: take the steps before for each of %s.", strings.Join(names, ", "))
		}
		s.step(b, title, s.apply(p, StepActive, p.rollout(), p.containers())...)
	}
	if !p.Flags.LeaderElection {
		remove("Remove csi-attacher, while the mode is observe: nobody attaches until the next step. No Lease keeps the two apart.")
		s.step(b, fmt.Sprintf(`When the first command prints %s for no Pod any more: set "mode: active" and "onForeignWriter: pause" in drivers.yaml, and apply the overlay.`, p.Container.Name),
			p.podContainers(), hubApply)
		return
	}
	s.step(b, `Set "mode: active" in drivers.yaml, and apply the overlay. The status is WaitingForLease: csi-attacher has the Lease, and goes on working.`,
		hubApply, "csi-attach-hub status")
	remove(fmt.Sprintf("Remove csi-attacher. The hub takes the Lease as soon as it is free, which can take %s. The last command must not print %s.", Duration(p.LeaseWait()), p.Container.Name))
}

// dropIn writes the steps to the hub in the place of csi-attacher.
func (s *steps) dropIn(b *page, p Plan) {
	title, reference, container := "Replace the image. The Pods are replaced once.", p.reference(), p.Container.Name
	if p.deployer != "" {
		title = "Replace the image in the variable. The deployer then makes csi-attacher anew."
		reference, container = p.made.reference, p.made.container
	}
	s.step(b, title+s.makerHint(p), s.apply(p, StepActive, p.rollout())...)
	verify := []string{fmt.Sprintf("kubectl -n %s logs %s -c %s --tail=20", p.Workload.Namespace, reference, container),
		"kubectl get volumeattachments -o wide"}
	if p.Flags.LeaderElection && p.Driver != "" {
		verify = append(verify, p.holder())
	}
	s.step(b, "Verify: the container runs, and new Pods get their volumes.", verify...)
	s.step(b, "The way back: put the old image back.", s.original(p, p.rollout())...)
}

// sidecarHub writes the steps to a hub in the driver's Pod.
func (s *steps) sidecarHub(b *page, p Plan, all []Plan) {
	s.step(b, "Observe: put the hub beside the driver. csi-attacher goes on working. The Pods are replaced once."+s.makerHint(p),
		s.apply(p, StepObserve, p.rollout())...)
	title := fmt.Sprintf("Remove csi-attacher. The hub takes the Lease as soon as it is free, which can take %s. The last command must not print %s.", Duration(p.LeaseWait()), p.Container.Name)
	if names := driverNames(all); len(names) > 1 {
		title += fmt.Sprintf(" This changes all drivers of the folder: %s.", strings.Join(names, ", "))
	}
	s.step(b, title, s.apply(p, StepActive, p.rollout(), p.containers())...)
	s.step(b, "Verify: the hub's Pod holds the Lease, and new Pods get their volumes.", p.holder(),
		"kubectl get volumeattachments -o wide | grep "+p.Driver)
	s.step(b, "The way back: first to the hub that observes, then to the manifest as it was.",
		slices.Concat(s.apply(p, StepObserve, p.rollout()), s.original(p, s.deleteObjects()))...)
}

// deleteObjects deletes the objects beside the workload. Helm has deleted its own.
func (s *steps) deleteObjects() string {
	return fmt.Sprintf("kubectl delete --ignore-not-found -f %s/observe/objects.yaml", s.dir)
}

// reference names the workload for kubectl.
func (p Plan) reference() string {
	return strings.ToLower(p.Workload.GetKind()) + "/" + p.Workload.GetName()
}

func (p Plan) rollout() string {
	return fmt.Sprintf("kubectl -n %s rollout status %s", p.Workload.Namespace, p.reference())
}

func (p Plan) containers() string {
	field := "containers"
	if p.Init {
		field = "initContainers"
	}
	return fmt.Sprintf(`kubectl -n %s get %s -o jsonpath='{.spec.template.spec.%s[*].name}{"\n"}'`, p.Workload.Namespace, p.reference(), field)
}

// podContainers prints the containers of each Pod, also of those that are ending.
func (p Plan) podContainers() string {
	field := "containers"
	if p.Init {
		field = "initContainers"
	}
	return fmt.Sprintf(`kubectl -n %s get pods -l %s=true -o jsonpath='{range .items[*]}{.metadata.name}: {.spec.%s[*].name}{"\n"}{end}'`, p.Workload.Namespace, p.DriverLabel(), field)
}

// holder prints who holds the Lease. Where csi-attacher has none, the hub makes one in its own namespace.
func (p Plan) holder() string {
	namespace := p.LeaseNamespace()
	if !p.Flags.LeaderElection && p.Options.Mode == ModeProxy {
		namespace = p.HubNamespace()
	}
	return fmt.Sprintf(`kubectl -n %s get lease %s -o jsonpath='{.spec.holderIdentity}{"\n"}'`, namespace, registry.LeaseName(p.Driver))
}
