package adopt

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
func (s *steps) makerHint() string {
	for _, p := range s.plans {
		who, _, made := strings.Cut(p.maker(), " makes ")
		if !made {
			continue
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
	return ""
}

// apply returns the commands that bring the workloads to a step.
func (s *steps) apply(step Step) []string {
	return s.each(func(p Plan) []string {
		switch p.maker() {
		case byHelm:
			return helmUpgrade(p, s.plugin, step)
		case byArgoCD:
			return []string{fmt.Sprintf("# in Git: let the Application point to %s/%s, or let its plugin render --step=%[2]s", s.dir, step), "argocd app sync APPLICATION"}
		case byFluxHelm:
			return []string{fmt.Sprintf("# in Git: spec.postRenderers of the HelmRelease as in %s.yaml of -o flux=DIR, with DIR/objects applied before", step),
				fluxReconcile(p, "helmrelease")}
		case byFluxFiles:
			return []string{fmt.Sprintf("# in Git: let the Kustomization point to %s/%s", s.dir, step), fluxReconcile(p, "kustomization")}
		}
		return []string{fmt.Sprintf("kubectl apply -k %s/%s", quoted(s.dir), step)}
	})
}

// original returns the commands that bring the workloads back to what they were.
func (s *steps) original() []string {
	return s.each(func(p Plan) []string {
		switch p.maker() {
		case byHelm:
			return []string{helmCommand(p) + "   # without the post-renderer"}
		case byArgoCD:
			return []string{"# in Git: let the Application point to what it had before", "argocd app sync APPLICATION"}
		case byFluxHelm:
			return []string{"# in Git: remove the patches from spec.postRenderers of the HelmRelease", fluxReconcile(p, "helmrelease")}
		case byFluxFiles:
			return []string{"# in Git: let the Kustomization point to what it had before", fluxReconcile(p, "kustomization")}
		}
		return []string{fmt.Sprintf("kubectl apply -k %s/original", quoted(s.dir))}
	})
}

// release returns the name and the namespace of the Helm release of the workload.
func (p Plan) release() (name, namespace string) {
	annotations := p.Workload.GetAnnotations()
	namespace = cmp.Or(annotations["meta.helm.sh/release-namespace"], p.Workload.GetNamespace())
	if namespace == "" && p.Options.Namespace != metav1.NamespaceDefault { // else it is only assumed
		namespace = p.Options.Namespace
	}
	return quoted(cmp.Or(annotations["meta.helm.sh/release-name"], "RELEASE")), quoted(cmp.Or(namespace, "NAMESPACE"))
}

// helmCommand returns an upgrade of the release to what it is.
func helmCommand(p Plan) string {
	name, namespace := p.release()
	return fmt.Sprintf("helm upgrade %s CHART --version VERSION -n %s", name, namespace)
}

// helmUpgrade returns the command of Helm 4 for a step.
func helmUpgrade(p Plan, plugin string, step Step) []string {
	_, namespace := p.release()
	return []string{fmt.Sprintf(`%s --post-renderer %s \`, helmCommand(p), plugin),
		fmt.Sprintf("  --post-renderer-args=--namespace=%s --post-renderer-args=--step=%s", namespace, step)}
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
