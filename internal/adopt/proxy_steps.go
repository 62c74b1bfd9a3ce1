package adopt

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// overlay is the user's overlay of the hub.
	overlay = "deploy/overlays/mine"
	// hubApply applies the overlay of the hub.
	hubApply  = "kubectl apply -k " + overlay
	hubStatus = "csi-attach-hub status"
)

// proxy writes the steps to a hub in its own Deployment.
func (s *steps) proxy(b *page) {
	s.step(b, "Give the namespace of the driver the authority of the hub. Without it, the Pod with the proxy does not start.",
		append([]string{fmt.Sprintf(`kubectl -n %s get secret csi-attach-hub-ca -o jsonpath='{.data.tls\.crt}' \`, s.plans[0].HubNamespace()),
			"  | base64 -d > hub-ca.crt"}, s.each(func(p Plan) []string {
			return []string{fmt.Sprintf(`test -s hub-ca.crt && kubectl -n %s create configmap %s --from-file=ca.crt=hub-ca.crt --dry-run=client -o yaml \`, p.Workload.Namespace, hubCA),
				"  | kubectl apply --server-side --field-manager=attach-hub -f -"}
		})...)...)
	s.certificates(b)
	s.step(b, "Observe: put the proxy beside the driver. csi-attacher goes on working."+s.replaced()+s.moves()+s.makerHint(), s.rolledOut(StepObserve)...)
	s.driverAuthority(b)
	s.addToHub(b)
	check := `Check, about a minute later. Go on when no check of preflight fails, and when the hub has seen attaches and detaches and each item of checklist has "ok": true.`
	if !s.withLease() {
		check += " Without leader election the item lease stays false: csi-attacher takes no Lease."
	}
	s.step(b, check, s.each(func(p Plan) []string {
		return []string{"kubectl -n " + p.HubNamespace() + " exec deploy/" + hubName + " -- /csi-attach-hub preflight --driver " + p.Driver,
			fmt.Sprintf(`csi-attach-hub status -o json | jq '.drivers[] | select(.name == "%s") | {observed, checklist}'`, p.Driver)}
	})...)
	s.handOver(b)
	s.step(b, "Verify: the driver is Ready, a replica of the hub holds the Lease, and new Pods get their volumes.",
		append([]string{hubStatus}, s.each(Plan.verify)...)...)
	s.wayBack(b)
	s.step(b, fmt.Sprintf("To remove everything, after the way back: remove the %s from drivers.yaml and the folder from the components. Then apply the overlay.", s.entries()), hubApply)
	s.step(b, "Remove the proxy and what belongs to it."+s.moves(), slices.Concat(s.original(), s.each(Plan.rollout), []string{s.deleteObjects()}, s.each(func(p Plan) []string {
		secrets := p.Base() + "-tls"
		if p.Options.Certificates != CertExisting {
			secrets = p.Base() + "-ca " + secrets
		}
		return []string{fmt.Sprintf("kubectl -n %s delete secret %s", p.Workload.Namespace, secrets),
			fmt.Sprintf(`kubectl -n %s create configmap %s --dry-run=client -o yaml \`, p.HubNamespace(), driverCAs),
			fmt.Sprintf("  | kubectl apply --server-side --field-manager=%s -f -   # removes the key of this driver", p.Base())}
	}), s.each(func(p Plan) []string {
		return []string{fmt.Sprintf("kubectl -n %s delete configmap %s   # if no other driver is served from this namespace", p.Workload.Namespace, hubCA)}
	}))...)
}

// withLease reports whether a Lease keeps each csi-attacher apart from the hub. Else the order of the steps must.
func (s *steps) withLease() bool {
	return !slices.ContainsFunc(s.plans, func(p Plan) bool { return !p.Flags.LeaderElection })
}

// certificates writes the step that makes the certificates before the Pods wait for them: where a Pod ends before the
// next one starts, the driver is away while the Secret is missing.
func (s *steps) certificates(b *page) {
	if s.plans[0].Options.Certificates == CertExisting {
		for _, p := range s.plans {
			s.step(b, fmt.Sprintf("Make Secret %s-tls with the keys tls.crt, a certificate for the DNS name %[1]s, and tls.key, its private key. Without the Secret, the Pod with the proxy does not start.", p.Base()),
				fmt.Sprintf("kubectl -n %s create secret tls %s-tls --cert=tls.crt --key=tls.key", p.Workload.Namespace, p.Base()))
		}
		return
	}
	title := "Make the certificate of the proxy, for which the Pods wait. cert-manager must run in the cluster; without cert-manager, write the files with --certificates existing."
	commands := []string{"kubectl get crd certificates.cert-manager.io"}
	if slices.ContainsFunc(s.plans, func(p Plan) bool { return p.maker() == byHelm }) { // Helm takes over no object that it has not made
		title = "cert-manager must run in the cluster: it makes the certificate of the proxy in the next step. Without cert-manager, write the files with --certificates existing."
		if slices.ContainsFunc(s.plans, Plan.endsFirst) {
			title += " The old Pod ends before the new one starts, and the new one waits for the certificate: the driver is away until then."
		}
	} else {
		commands = append(commands, fmt.Sprintf("kubectl apply -f %s/observe/objects.yaml", quoted(s.dir)))
		commands = append(commands, s.each(func(p Plan) []string { return []string{p.certificateReady(p.Base())} })...)
	}
	s.step(b, title, commands...)
}

func (p Plan) certificateReady(name string) string {
	return fmt.Sprintf("kubectl -n %s wait --for=condition=Ready --timeout=2m certificate/%s", p.Workload.Namespace, name)
}

// driverAuthority writes the step that lets the hub trust the certificate of the proxy.
func (s *steps) driverAuthority(b *page) {
	title := "Give the hub the authority of the driver. The keys of other drivers stay as they are."
	if s.plans[0].Options.Certificates == CertExisting {
		var files []string
		for _, p := range s.plans {
			files = append(files, p.Driver+".crt")
		}
		title = fmt.Sprintf("Give the hub the authority that signed your certificate: write it to the file %s, in PEM. It becomes the key of that name. The keys of other drivers stay as they are.", strings.Join(files, " and "))
	}
	s.step(b, title, s.each(func(p Plan) []string {
		var read []string
		if p.Options.Certificates != CertExisting {
			read = []string{p.certificateReady(p.Base() + "-ca"),
				fmt.Sprintf(`kubectl -n %s get secret %s-ca -o jsonpath='{.data.tls\.crt}' \`, p.Workload.Namespace, p.Base()),
				fmt.Sprintf("  | base64 -d > %s.crt", p.Driver)}
		}
		return append(read,
			fmt.Sprintf(`test -s %s.crt && kubectl -n %s create configmap %s --from-file=%[1]s.crt \`, p.Driver, p.HubNamespace(), driverCAs),
			fmt.Sprintf("  --dry-run=client -o yaml | kubectl apply --server-side --field-manager=%s -f -", p.Base()))
	})...)
}

// addToHub writes the step that makes the hub know the drivers.
func (s *steps) addToHub(b *page) {
	component := "#   the path of " + s.dir + "/hub from there"
	if filepath.IsLocal(s.dir) {
		component = "#   - ../../../" + filepath.ToSlash(filepath.Clean(s.dir)) + "/hub"
	}
	var nodePorts []string
	for _, p := range s.plans {
		if p.HostNetwork() {
			nodePorts = append(nodePorts, fmt.Sprint(p.Ports.Listen))
		}
	}
	chart := "If the hub runs from its chart: add the " + s.entries() + " to the value drivers, and set proxies.enabled: true"
	if len(nodePorts) > 0 {
		chart += fmt.Sprintf(". The value proxies.hostNetwork must have {cidr: ADDRESSES OF THE NODES, ports: [%s]}", strings.Join(nodePorts, ", "))
	}
	s.step(b, fmt.Sprintf("Add the %s above to drivers.yaml in the overlay of the hub, and the folder hub to its components. Apply the overlay. %s.", s.entries(), chart),
		fmt.Sprintf("# under components of %s/kustomization.yaml, by the path from there:", overlay), component,
		fmt.Sprintf("csi-attach-hub validate %s/drivers.yaml", overlay), hubApply)
}

// entries names what the drivers have in drivers.yaml.
func (s *steps) entries() string {
	if len(s.plans) > 1 {
		return "entries"
	}
	return "entry"
}

// handOver writes the steps from csi-attacher to the hub. The Lease keeps the two apart, else their order.
func (s *steps) handOver(b *page) {
	remove := slices.Concat(s.rolledOut(StepActive), s.each(Plan.gone))
	if !s.withLease() {
		s.step(b, "Remove csi-attacher, while the mode is observe: nobody attaches until the next step. No Lease keeps the two apart."+s.moves()+goneText, remove...)
		s.step(b, `When the last command has ended: set "mode: active" and "onForeignWriter: pause" in drivers.yaml, and apply the overlay.`+s.moves(), hubApply)
		return
	}
	s.step(b, `Set "mode: active" in drivers.yaml, and apply the overlay. The status is WaitingForLease: csi-attacher has the Lease, and goes on working.`+s.moves(),
		hubApply, hubStatus)
	s.step(b, s.removed(), remove...)
}

// wayBack writes the steps back to csi-attacher. A change of drivers.yaml or a wait is between each two of them.
func (s *steps) wayBack(b *page) {
	back := "csi-attacher comes back and waits for the Lease."
	if s.withLease() {
		back = "The way back: " + back
	} else {
		s.step(b, `The way back: set "mode: paused" in drivers.yaml, and apply the overlay. Go on when status shows Paused, not before.`+s.moves(), hubApply, hubStatus)
		back = "Put csi-attacher back."
	}
	s.step(b, back+s.moves(), s.rolledOut(StepObserve)...)
	s.step(b, `Set "mode: observe" in drivers.yaml, and apply the overlay. The hub frees its Lease.`+s.moves(), hubApply, hubStatus)
}
