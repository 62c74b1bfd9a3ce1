package adopt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// guide is what the templates of README.md and of the scripts say about a folder.
type guide struct {
	Plans   []Plan // that can be adopted
	Dir     string // path of the folder, as a shell takes it
	Finding string // what Text says
}

func newGuide(plans []Plan, dir string) guide {
	g := guide{Dir: quoted(terminal.Line(dir))}
	var t text
	for _, p := range plans {
		t.plan(p)
		if p.Adoptable() {
			g.Plans = append(g.Plans, p)
		}
	}
	g.Finding = strings.ReplaceAll(t.String(), "```", "'''") // it is in a block of code
	return g
}

func (g guide) mode() Mode                   { return g.Plans[0].Options.Mode }
func (g guide) any(has func(Plan) bool) bool { return slices.ContainsFunc(g.Plans, has) }

func (g guide) Proxy() bool        { return g.mode() == ModeProxy }
func (g guide) CertManager() bool  { return g.Plans[0].Options.Certificates != CertExisting }
func (g guide) WithoutLease() bool { return g.any(Plan.withoutLease) }
func (g guide) OnDelete() bool     { return g.any(Plan.onDelete) }
func (g guide) Several() bool      { return len(g.Plans) > 1 }

// Wait returns how long the slowest Lease can take until it is free.
func (g guide) Wait() string {
	return Duration(slices.MaxFunc(g.Plans, func(x, y Plan) int { return int(x.LeaseWait() - y.LeaseWait()) }).LeaseWait())
}

// Maker returns who writes a workload from a source, "" if nobody is known.
func (g guide) Maker() string {
	for _, p := range g.Plans {
		if m := find(renderers, p.Workload.Object); m != nil {
			return m.who
		}
	}
	return ""
}

// list returns the texts of all plans, each once.
func (g guide) list(separator string, text func(Plan) string) string {
	var all []string
	for _, p := range g.Plans {
		if one := text(p); !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return strings.Join(all, separator)
}

func (g guide) Drivers() string {
	return g.list(" and ", func(p Plan) string { return cmp.Or(p.Driver, p.Workload.GetName()) })
}

func (g guide) Files() string {
	return g.list(" and ", func(p Plan) string { return "`hub/" + p.fileName() + "`" })
}

// NodePorts says what proxies on the network of nodes need.
func (g guide) NodePorts() string {
	return g.list("", func(p Plan) string {
		if p.HostNetwork() {
			return fmt.Sprintf(" Port %d of the nodes must be in its value `proxies.hostNetwork`.", p.Ports.Listen)
		}
		return ""
	})
}

func (g guide) HubNamespace() string { return g.Plans[0].HubNamespace() }

// AtHub is the flag of commands that look for the hub, if it is not where they look by themselves.
func (g guide) AtHub() string {
	if namespace := g.HubNamespace(); namespace != DefaultHubNamespace {
		return " --hub-namespace=" + namespace
	}
	return ""
}

// Rollout returns the commands that wait for the new Pods. kubectl rollout status fails with OnDelete.
func (g guide) Rollout() []string {
	return strings.Split(g.list("\n", func(p Plan) string {
		if !p.onDelete() {
			return fmt.Sprintf("kubectl -n %s rollout status %s", p.Workload.Namespace, p.Reference())
		}
		return fmt.Sprintf("kubectl -n %[1]s delete pod -l %[2]s\nuntil kubectl -n %[1]s wait --for=condition=Ready --timeout=5m pod -l %[2]s; do sleep 5; done", p.Workload.Namespace, p.Workload.selector())
	}), "\n")
}

// Gone returns the commands that print the Pods with csi-attacher, until there is none. The template alone does not say
// it: an old Pod can still end, or be on a node that is lost.
func (g guide) Gone() []string {
	return strings.Split(g.list("\n", func(p Plan) string {
		field := "containers"
		if p.Init {
			field = "initContainers"
		}
		return fmt.Sprintf("until pods=$(kubectl -n %s get pods -l %s --field-selector=status.phase!=Succeeded,status.phase!=Failed \\\n"+
			`  -o jsonpath='{range .items[*]}{.metadata.name} {.spec.%s[?(@.name=="%s")].name}{"\n"}{end}') \`+"\n"+
			`  && ! echo "$pods" | grep ' .'; do sleep 5; done`, p.Workload.Namespace, p.Workload.selector(), field, p.Container.Name)
	}), "\n")
}

// Reference names the workload for kubectl.
func (p Plan) Reference() string {
	return strings.ToLower(p.Workload.GetKind()) + "/" + p.Workload.GetName()
}

// Holder prints who holds the Lease. Where csi-attacher has none, the hub makes one in its own namespace.
func (p Plan) Holder() string {
	namespace := p.LeaseNamespace()
	if !p.Flags.LeaderElection {
		namespace = p.HubNamespace()
	}
	return fmt.Sprintf(`kubectl -n %s get lease %s -o jsonpath='{.spec.holderIdentity}{"\n"}'`, namespace, registry.LeaseName(p.Driver))
}

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
