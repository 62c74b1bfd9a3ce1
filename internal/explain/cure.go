package explain

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// remedy says how explain finds the commands that cure what a finding names.
type remedy struct {
	config, workload bool // what it needs: where drivers.yaml is, what runs the driver's controller
	holder           bool // or the Pod that holds the driver's lease
	certificates     bool // or the Secrets with the certificates of both sides; the workload too
	account          bool // or the ServiceAccount of the hub
	plugin           bool // what registers the driver on the node
	otherNode        bool // the node to which the volume is attached
	webhooks         bool
	// find completes the finding. It sets the commands if it knows them, and may name a more exact cause. Without the
	// commands the sentence that says what to do must be enough.
	find func(*walk, *Finding)
}

// remedies are the remedies by verdict.
var remedies = map[diagnosis.Verdict]remedy{
	diagnosis.DriverPaused:       {config: true, find: (*walk).resume},
	diagnosis.ConfigBroken:       {config: true, find: (*walk).mend},
	diagnosis.SocketMissing:      {config: true, workload: true, find: (*walk).reach},
	diagnosis.CannotConnect:      {config: true, workload: true, find: (*walk).reach},
	diagnosis.CertificateExpired: {workload: true, certificates: true, find: (*walk).renew},
	diagnosis.CertificateName:    {config: true, find: (*walk).acceptName},
	diagnosis.LeaseHeld:          {workload: true, holder: true, find: (*walk).freeLease},
	diagnosis.ForeignWriter:      {config: true, workload: true, find: (*walk).endWriter},
	diagnosis.RightMissing:       {account: true, find: (*walk).grant},
	diagnosis.SecretForbidden:    {account: true, find: (*walk).grant},
	diagnosis.SecretMissing:      {find: (*walk).makeSecret},
	diagnosis.CallUnanswered:     {workload: true, find: (*walk).restart},
	diagnosis.DriverUnresponsive: {workload: true, find: (*walk).restart},

	diagnosis.NodeWithoutDriver:   {plugin: true, find: (*walk).register},
	diagnosis.NodeWithoutCSI:      {plugin: true, find: (*walk).register},
	diagnosis.NodeMissing:         {find: (*walk).withdraw},
	diagnosis.VolumeMissing:       {find: (*walk).withdraw},
	diagnosis.AttachedElsewhere:   {otherNode: true, find: (*walk).outOfService},
	diagnosis.AttachRequiredWrong: {find: (*walk).requireAttach},
	diagnosis.WebhookFailed:       {webhooks: true, find: (*walk).ignoreWebhook},
}

// cure completes a finding that explains why something does not work. What is only claimed leads to no command: the text
// could name the right or the webhook that its writer wants changed.
func (w *walk) cure(f *Finding) {
	if f.claimed {
		if s := w.Secret; f.Verdict == diagnosis.SecretForbidden && !strings.Contains(f.Next, "secret "+s.Namespace+"/"+s.Name+",") {
			f.Next = w.action(f.Verdict) // without the name of a secret that the volume does not have
		}
		return
	}
	if r, known := remedies[f.Verdict]; known {
		r.find(w, f)
	}
}

// evidence reads what the commands for the findings need. What is in order costs no requests.
func (g *gatherer) evidence(ctx context.Context) {
	for i := range g.facts.Volumes {
		if stop := explainVolume(&g.facts, i).Stop; stop != nil {
			g.evidenceFor(ctx, &g.facts.Volumes[i], stop.Verdict)
		}
	}
	if g.facts.Question.Kind == Driver && g.facts.Found {
		subject, _ := explainDriver(&g.facts, status.Fine)
		for _, reason := range subject.Reasons {
			g.evidenceFor(ctx, g.facts.Subject, reason.Verdict)
		}
	}
}

func (g *gatherer) evidenceFor(ctx context.Context, v *Volume, verdict diagnosis.Verdict) {
	r := remedies[verdict]
	if r.config && g.facts.Config == nil {
		g.facts.Config = g.configMap(ctx)
	}
	if r.workload && v.Workload == nil {
		v.Workload = g.workloadOf(ctx, v)
	}
	if r.holder {
		v.Workload = cmp.Or(g.workloadOfHolder(ctx, v), v.Workload)
		v.Holders = g.pods(ctx, g.leaseSpace(v), func(*corev1.Pod) bool { return true })
	}
	if r.account {
		g.facts.Account = g.account(ctx)
	}
	if r.certificates {
		g.certificates(ctx, v)
	}
	if r.plugin && v.Plugin == nil {
		v.Plugin = g.nodePlugin(ctx, v)
	}
	if other := v.otherNode(); r.otherNode && other != nil {
		v.OtherNode = one(ctx, g, "Node", "", other.Spec.NodeName, g.Kube.CoreV1().Nodes().Get)
	}
	if r.webhooks {
		v.Webhooks = g.webhooks(ctx)
	}
}

// set returns the command that changes settings of a driver in drivers.yaml, such as "mode=active".
func (w *walk) set(driver string, changes ...string) []string {
	file := "FILE"
	if c := w.Config; c != nil {
		file = c.arg()
	}
	return append([]string{"csi-attach-hub", "set", file, driver}, changes...)
}

// configure gives a finding commands that change drivers.yaml.
func (w *walk) configure(f *Finding, lines ...[]string) {
	f.Commands = diagnosis.Commands(lines...)
	if w.Config != nil && len(f.Commands) > 0 {
		f.Next += " If the ConfigMap is made from a file in a repository, change that file, with its path in place of " + w.Config.arg() + "."
	}
}

// resume cures a driver that drivers.yaml pauses.
func (w *walk) resume(f *Finding) {
	if w.Served != nil && w.Served.Mode == "paused" {
		w.configure(f, w.set(w.Driver, "mode=active"))
	} else {
		w.endConflict(f)
	}
}

// mend cures mistakes in entries of drivers.yaml: a misspelt key gets the name that was meant, a wrong value has to be filled
// in. An entry with a key that means nothing has no command: to remove the key is for the reader to decide.
func (w *walk) mend(f *Finding) {
	var lines [][]string
	unclear := map[string]bool{} // drivers
	for _, m := range w.Hub.View.Mistakes() {
		changes := []string{m.Key + "=VALUE"}
		if m.Unknown {
			unclear[m.Driver] = unclear[m.Driver] || m.Near == ""
			changes = []string{m.Near + "=" + cmp.Or(m.Value, "VALUE"), m.Key + "-"}
		}
		i := slices.IndexFunc(lines, func(words []string) bool { return words[3] == m.Driver })
		if i < 0 {
			i, lines = len(lines), append(lines, w.set(m.Driver))
		}
		for _, change := range changes {
			if !slices.Contains(lines[i], change) {
				lines[i] = append(lines[i], change)
			}
		}
	}
	lines = slices.DeleteFunc(lines, func(words []string) bool { return unclear[words[3]] })
	w.configure(f, lines...)
}
