package adopt

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

func TestAPolicyOpensNoPortThatAnotherPolicyCloses(t *testing.T) {
	policy := func(spec string) string {
		return "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: closed, namespace: storage}\nspec: " + spec
	}
	for name, tt := range map[string]struct {
		other string
		o     Options
		rules int
		note  string
	}{
		"no other":             {rules: 2, note: "add --other-policies, or ports that it closes are opened: kubectl -n storage get networkpolicy"},
		"all Pods":             {other: policy("{podSelector: {}}"), rules: 1, note: "NetworkPolicy closed says what may connect"},
		"by an expression":     {other: policy("{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}, policyTypes: [Egress, Ingress]}"), rules: 1, note: "closed"},
		"another Pod":          {other: policy("{podSelector: {matchLabels: {app: other}}}"), rules: 2, note: "--other-policies"},
		"Egress":               {other: policy("{podSelector: {}, policyTypes: [Egress]}"), rules: 2, note: "--other-policies"},
		"another namespace":    {other: strings.Replace(policy("{podSelector: {}}"), "storage", "other", 1), rules: 2, note: "--other-policies"},
		"made by adopt":        {other: strings.Replace(policy("{podSelector: {}}"), "closed", "attach-hub-a", 1), rules: 2, note: "--other-policies"},
		"its selector is none": {other: policy("{podSelector: {matchExpressions: [{key: app, operator: Like}]}}"), rules: 1, note: "closed"},
		"the user":             {o: Options{OtherPolicies: true}, rules: 1, note: "(--other-policies)"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.o.Mode = ModeProxy
			text := strings.NewReplacer("NAME", "driver", "ARGS", "--leader-election", "ATTACHER", "", "POD", "").Replace(onePod)
			p := plansOfText(t, []byte(text+tt.other), tt.o)[0]
			made := objectsOf[networkingv1.NetworkPolicy](t, []Plan{p}, "NetworkPolicy")
			if len(made) != 1 || len(made[0].Spec.Ingress) != tt.rules || len(made[0].Spec.Ingress[0].From) == 0 {
				t.Errorf("policies %+v, want %d rules", made, tt.rules)
			}
			if notes := strings.Join(p.Notes, "\n"); !strings.Contains(notes, tt.note) {
				t.Errorf("notes: %s", notes)
			}
		})
	}
}
