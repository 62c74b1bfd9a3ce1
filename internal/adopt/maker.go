package adopt

import (
	"fmt"
	"slices"
	"strings"
)

// Who writes a workload from a source, as the marks of renderers say it. "" is anybody else: files in Git, for kubectl.
const (
	byHelm      = "Helm makes this object"
	byArgoCD    = "Argo CD makes this object"
	byFluxHelm  = "Flux makes this object from a HelmRelease"
	byFluxFiles = "Flux makes this object from a Kustomization"
)

// keepTitle is the title of the part about those tools, in the text.
const keepTitle = "If Helm, Argo CD or Flux makes the manifest"

// maker returns who writes the workload from a source.
func (p Plan) maker() string {
	if m := find(renderers, p.Workload.Object); m != nil {
		return m.who
	}
	return ""
}

// makerHint says how the workload is changed where it is made, "" if kubectl changes it.
func (s *steps) makerHint(p Plan) string {
	who, _, made := strings.Cut(p.maker(), " makes ")
	if !made {
		return ""
	}
	where := fmt.Sprintf("%q", keepTitle)
	if s.write == "" { // the part is not in README.md
		where = fmt.Sprintf("%q of deploy/HANDOVER.md", who)
	}
	hint := fmt.Sprintf(" %s makes this %s and undoes changes by kubectl", who, p.Workload.GetKind())
	if who == "Helm" {
		return fmt.Sprintf("%s: upgrade with the chart, the version and the values that are installed. The plugin for Helm 4 and the form for Helm 3 are in %s.", hint, where)
	}
	return fmt.Sprintf("%s: see %s.", hint, where)
}

// apply returns the commands that bring the workload to a step, and those that come after.
func (s *steps) apply(p Plan, step Step, after ...string) []string {
	switch p.maker() {
	case byHelm:
		return slices.Concat(helmUpgrade(s.plugin, step), after)
	case byArgoCD:
		return append([]string{fmt.Sprintf("# in Git: let the Application point to %s/%s, or let its plugin render --step=%[2]s", s.dir, step),
			"argocd app sync APPLICATION"}, after...)
	case byFluxHelm:
		return append([]string{fmt.Sprintf("# in Git: spec.postRenderers of the HelmRelease as in %s.yaml of -o flux=DIR, with DIR/objects applied before", step),
			fluxReconcile(p, "helmrelease")}, after...)
	case byFluxFiles:
		return append([]string{fmt.Sprintf("# in Git: let the Kustomization point to %s/%s", s.dir, step), fluxReconcile(p, "kustomization")}, after...)
	}
	return append([]string{fmt.Sprintf("kubectl apply -k %s/%s", s.dir, step)}, after...)
}

// original returns the commands that bring the workload back to what it was, and those that come after.
func (s *steps) original(p Plan, after ...string) []string {
	switch p.maker() {
	case byHelm:
		return append([]string{"helm upgrade RELEASE CHART -n NAMESPACE   # without the post-renderer"}, after...)
	case byArgoCD:
		return append([]string{"# in Git: let the Application point to what it had before", "argocd app sync APPLICATION"}, after...)
	case byFluxHelm:
		return append([]string{"# in Git: remove the patches from spec.postRenderers of the HelmRelease", fluxReconcile(p, "helmrelease")}, after...)
	case byFluxFiles:
		return append([]string{"# in Git: let the Kustomization point to what it had before", fluxReconcile(p, "kustomization")}, after...)
	}
	return append([]string{fmt.Sprintf("kubectl apply -k %s/original", s.dir)}, after...)
}

// helmUpgrade returns the command of Helm 4 for a step.
func helmUpgrade(plugin string, step Step) []string {
	return []string{fmt.Sprintf(`helm upgrade RELEASE CHART -n NAMESPACE --post-renderer %s \`, plugin),
		"  --post-renderer-args=--namespace=NAMESPACE --post-renderer-args=--step=" + string(step)}
}

// fluxReconcile returns the command that lets Flux see a change in Git at once.
func fluxReconcile(p Plan, kind string) string {
	prefix := map[string]string{"helmrelease": "helm.toolkit.fluxcd.io/", "kustomization": "kustomize.toolkit.fluxcd.io/"}[kind]
	label := func(key, unknown string) string {
		if value := p.Workload.GetLabels()[prefix+key]; value != "" {
			return quoted(value)
		}
		return unknown
	}
	return strings.Join([]string{"flux reconcile", kind, label("name", "NAME"), "-n", label("namespace", "NAMESPACE"), "--with-source"}, " ")
}
