package adopt

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// goneText explains Plan.gone.
const goneText = " The last command prints the Pods that still have csi-attacher, and ends when there is none. A Pod that is Terminating counts, also on a lost node: its csi-attacher can still work."

// strategy returns the type of the update strategy.
func (w *Workload) strategy() string {
	key := "updateStrategy"
	if w.GetKind() == "Deployment" {
		key = "strategy"
	}
	kind, _, _ := unstructured.NestedString(w.Object.Object, "spec", key, "type")
	return kind
}

// onDelete reports whether Pods stay as they are until somebody deletes them.
func (p Plan) onDelete() bool { return p.Workload.strategy() == "OnDelete" }

// endsFirst reports whether an old Pod ends before the new one starts.
func (p Plan) endsFirst() bool {
	return p.Workload.GetKind() != "Deployment" || p.Workload.strategy() == "Recreate" || p.setsStrategy()
}

// replaced says what happens to the Pods.
func (s *steps) replaced() string {
	if slices.ContainsFunc(s.plans, Plan.onDelete) {
		return " The update strategy is OnDelete, which replaces no Pod: the commands delete the Pods."
	}
	return " The Pods are replaced once."
}

// selector returns the labels of the workload's Pods, for kubectl.
func (w *Workload) selector() string {
	var selector metav1.LabelSelector
	if content, found, _ := unstructured.NestedMap(w.Object.Object, "spec", "selector"); found {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &selector); err != nil {
			selector = metav1.LabelSelector{}
		}
	}
	if len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0 {
		selector.MatchLabels = w.Template.Labels
	}
	return quoted(metav1.FormatLabelSelector(&selector))
}

// rollout returns the commands that wait for the new Pods. kubectl rollout status fails with OnDelete.
func (p Plan) rollout() []string {
	if !p.onDelete() {
		return []string{fmt.Sprintf("kubectl -n %s rollout status %s", p.Workload.Namespace, p.reference())}
	}
	return []string{
		fmt.Sprintf("kubectl -n %s delete pod -l %s", p.Workload.Namespace, p.Workload.selector()),
		fmt.Sprintf("until kubectl -n %s wait --for=condition=Ready --timeout=5m pod -l %s; do sleep 5; done", p.Workload.Namespace, p.Workload.selector())}
}

// gone returns the command that prints the Pods with csi-attacher, until there is none. The template alone does not say
// it: an old Pod can still end, or be on a node that is lost.
func (p Plan) gone() []string {
	field := "containers"
	if p.Init {
		field = "initContainers"
	}
	return []string{
		fmt.Sprintf(`until pods=$(kubectl -n %s get pods -l %s --field-selector=status.phase!=Succeeded,status.phase!=Failed \`, p.Workload.Namespace, p.Workload.selector()),
		fmt.Sprintf(`  -o jsonpath='{range .items[*]}{.metadata.name} {.spec.%s[?(@.name=="%s")].name}{"\n"}{end}') \`, field, p.Container.Name),
		`  && ! echo "$pods" | grep ' .'; do sleep 5; done`}
}

// setsStrategy reports whether the update strategy must change: a Pod on the network of its node has ports for which
// two of them have no room there, and a rolling update that begins with a new Pod waits for a free node without end.
func (p Plan) setsStrategy() bool {
	if p.Options.Mode == ModeDropIn || !p.HostNetwork() || p.Workload.GetKind() != "Deployment" || p.Workload.strategy() == "Recreate" {
		return false
	}
	surge, found, _ := unstructured.NestedFieldNoCopy(p.Workload.Object.Object, "spec", "strategy", "rollingUpdate", "maxSurge")
	return !found || !slices.Contains([]string{"0", "0%"}, fmt.Sprint(surge))
}

// withoutSurge is the strategy of a workload whose Pods cannot be beside each other.
func withoutSurge() map[string]any {
	return map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(0), "maxUnavailable": int64(1)}}
}
