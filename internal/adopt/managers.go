package adopt

import (
	"fmt"
	"strings"
)

// mark is a label or an annotation by which those who manage an object mark it.
type mark struct {
	key   string // a prefix if it ends in '/'
	value string // "" for any
	who   string
	what  string // for what: why not, or what to do
}

const providerWay = ": it undoes changes. Install the driver yourself in place of the managed one, or keep its csi-attacher"

// restored are marks of those who undo changes of an object.
var restored = []mark{
	{"addonmanager.kubernetes.io/mode", "Reconcile", "the add-on manager of the provider manages it", providerWay},
	{"kubernetes.io/cluster-service", "true", "the add-on manager of the provider manages it", providerWay},
	{"app.kubernetes.io/managed-by", "EKS", "it is a managed add-on of Amazon EKS", providerWay},
	{"components.gke.io/", "", "GKE manages it", providerWay},
	{"kubernetes.azure.com/managedby", "aks", "AKS manages it", providerWay},
	{"doks.digitalocean.com/managed", "true", "DigitalOcean Kubernetes manages it", providerWay},
	{"resources.gardener.cloud/", "", "Gardener manages it", providerWay},
	{"operator.openshift.io/spec-hash", "", "the operator of OpenShift for this driver (ClusterCSIDriver) makes it", ": it undoes changes. Keep csi-attacher, or install the driver without the operator"},
	{"olm.owner", "", "the Operator Lifecycle Manager makes it", ": it undoes changes. Change the operator's ClusterServiceVersion, or keep csi-attacher"},
}

// managedNamespaces are namespaces in which the provider manages all.
var managedNamespaces = map[string]string{"gke-managed-": "GKE manages it", "openshift-cluster-csi-drivers": "the operator of OpenShift for this driver (ClusterCSIDriver) makes it"}

// find returns the first mark that an object has, nil if it has none.
func find(marks []mark, o Object) *mark {
	for i, m := range marks {
		for _, all := range []map[string]string{o.GetLabels(), o.GetAnnotations()} {
			for key, value := range all {
				if (key == m.key || strings.HasSuffix(m.key, "/") && strings.HasPrefix(key, m.key)) && (m.value == "" || strings.EqualFold(value, m.value)) {
					return &marks[i]
				}
			}
		}
	}
	return nil
}

// managedBy returns who undoes changes of an object, and what to do instead, "" if nobody is known.
func managedBy(o Object) string {
	if m := find(restored, o); m != nil {
		return fmt.Sprintf("%s (%s)%s", m.who, m.key, m.what)
	}
	for prefix, who := range managedNamespaces {
		if strings.HasPrefix(o.GetNamespace(), prefix) {
			return fmt.Sprintf("%s (namespace %s)%s", who, o.GetNamespace(), providerWay)
		}
	}
	if owner := o.controller(); owner != nil {
		return fmt.Sprintf("%s %s of %s makes it (ownerReferences) and undoes changes: make the change in that object if it can have it, or keep csi-attacher", owner.Kind, owner.Name, owner.APIVersion)
	}
	return ""
}

// renderers are marks of those who write an object from a source. The next write undoes what was changed in the
// cluster alone.
var renderers = []mark{
	{"helm.toolkit.fluxcd.io/", "", byFluxHelm, "add the patches as spec.postRenderers of the HelmRelease"},
	{"kustomize.toolkit.fluxcd.io/", "", byFluxFiles, "commit the output of -o kustomize=DIR to its repository"},
	{"argocd.argoproj.io/", "", byArgoCD, "commit the output of -o kustomize=DIR to its repository, or render with -o helm-post-renderer"},
	{"app.kubernetes.io/managed-by", "Helm", byHelm, "use -o helm-post-renderer for `helm upgrade --post-renderer`"},
	{"heritage", "Helm", byHelm, "use -o helm-post-renderer for `helm upgrade --post-renderer`"},
	{"meta.helm.sh/release-name", "", byHelm, "use -o helm-post-renderer for `helm upgrade --post-renderer`"},
}
