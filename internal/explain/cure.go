package explain

import (
	"cmp"
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// remedy says how explain finds the commands that cure what a finding names.
type remedy struct {
	workload     bool // what it needs: what runs the driver's controller
	holder       bool // or the Pod that holds the driver's lease
	certificates bool // or the Secrets with the certificates of both sides; the workload too
	account      bool // or the ServiceAccount of the hub
	plugin       bool // what registers the driver on the node
	otherNode    bool // the node to which the volume is attached
	webhooks     bool
	// find completes the finding. It sets the commands if it knows them, and may name a more exact cause. Without the
	// commands the sentence that says what to do must be enough.
	find func(*walk, *Finding)
}

// remedies are the remedies by verdict.
var remedies = map[diagnosis.Verdict]remedy{
	diagnosis.SocketMissing:      {workload: true, find: (*walk).reach},
	diagnosis.CannotConnect:      {workload: true, find: (*walk).reach},
	diagnosis.CertificateExpired: {workload: true, certificates: true, find: (*walk).renew},
	diagnosis.CertificateName:    {find: (*walk).acceptName},
	diagnosis.LeaseHeld:          {workload: true, holder: true, find: (*walk).freeLease},
	diagnosis.ForeignWriter:      {workload: true, find: (*walk).endWriter},
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
