package deploy_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// flow is where the API server puts a request: a FlowSchema and its priority level.
type flow struct{ schema, level string }

// flowOf returns the UIDs of both.
func flowOf(answer *http.Response) flow {
	return flow{answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID),
		answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)}
}

// The flows of the hub's requests. Events must not delay attaches.
var (
	leaseFlow      = flow{"csi-attach-hub-leases", "leader-election"}
	attachmentFlow = flow{"csi-attach-hub-attachments", "workload-high"}
	otherFlow      = flow{"service-accounts", "workload-low"}

	wantFlows = map[string]flow{
		"persistentvolumes":                attachmentFlow,
		"nodes":                            attachmentFlow,
		"secrets":                          attachmentFlow,
		"volumeattachments.storage.k8s.io": attachmentFlow,
		"volumeattachments/status.storage.k8s.io": attachmentFlow,
		"csinodes.storage.k8s.io":                 attachmentFlow,
		"csidrivers.storage.k8s.io":               attachmentFlow,
		"leases.coordination.k8s.io":              attachmentFlow,
		"get leases.coordination.k8s.io":          leaseFlow,
		"create leases.coordination.k8s.io":       leaseFlow,
		"update leases.coordination.k8s.io":       leaseFlow,
		"events":                                  otherFlow,
	}
)

// wantFlow returns the flow of requests that need a right: that of verb and resource, else that of
// the resource.
func wantFlow(right string) flow {
	right, _, namespaced := strings.Cut(right, " in namespace ")
	if namespaced { // then the rest may be a name: the hub uses no subresource there
		right, _, _ = strings.Cut(right, "/")
	}
	if f, ok := wantFlows[right]; ok {
		return f
	}
	_, resource, _ := strings.Cut(right, " ")
	return wantFlows[resource]
}

// waitFlows waits until the API server follows the FlowSchemas that were applied.
func (d *deployed) waitFlows() {
	d.t.Helper()
	for _, o := range d.objects {
		if o.GetKind() != "FlowSchema" {
			continue
		}
		poll(d.ctx, d.t, "the API server follows FlowSchema "+o.GetName(), func() bool {
			schema, err := d.client.FlowcontrolV1().FlowSchemas().Get(d.ctx, o.GetName(), metav1.GetOptions{})
			if err != nil {
				d.t.Fatal(err)
			}
			return slices.ContainsFunc(schema.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) bool {
				return c.Type == flowcontrolv1.FlowSchemaConditionDangling && c.Status == flowcontrolv1.ConditionFalse
			})
		})
	}
}

// checkFlows compares the flow of each kind of request that the hub has made with the one it should have.
func (d *deployed) checkFlows() {
	d.t.Helper()
	names := map[string]string{} // by UID
	schemas, err := d.client.FlowcontrolV1().FlowSchemas().List(d.ctx, metav1.ListOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, s := range schemas.Items {
		names[string(s.UID)] = s.Name
	}
	levels, err := d.client.FlowcontrolV1().PriorityLevelConfigurations().List(d.ctx, metav1.ListOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, l := range levels.Items {
		names[string(l.UID)] = l.Name
	}
	d.recorder.mu.Lock()
	defer d.recorder.mu.Unlock()
	for _, right := range slices.Sorted(maps.Keys(d.recorder.flows)) {
		f := d.recorder.flows[right]
		if got, want := (flow{names[f.schema], names[f.level]}), wantFlow(right); got != want {
			d.t.Errorf("requests to %s: FlowSchema %q, priority level %q, want %q, %q", right, got.schema, got.level, want.schema, want.level)
		}
	}
}

func TestFlowSchemasAreForTheHubAlone(t *testing.T) {
	found := 0
	for _, o := range objectsOf(t, ofInstallYAML) {
		if o.GetKind() != "FlowSchema" {
			continue
		}
		found++
		for _, rule := range as[flowcontrolv1.FlowSchema](t, o).Spec.Rules {
			account := flowcontrolv1.ServiceAccountSubject{Name: "csi-attach-hub", Namespace: "csi-attach-hub"}
			if len(rule.Subjects) != 1 || rule.Subjects[0].ServiceAccount == nil || *rule.Subjects[0].ServiceAccount != account {
				t.Errorf("FlowSchema %s is for %v", o.GetName(), rule.Subjects)
			}
		}
	}
	if want := 2; found != want {
		t.Errorf("%d FlowSchemas, want %d", found, want)
	}
}
