package adopt

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deployer is a workload that makes the workload of a csi-attacher, by the image in a variable.
type deployer struct {
	workload        *Workload
	variable, image string
}

func (in input) deployers() (all []deployer) {
	for _, w := range in.workloads {
		for _, c := range w.containers() {
			for _, e := range c.Env {
				if strings.HasSuffix(e.Name, "ATTACHER_IMAGE") {
					all = append(all, deployer{w, e.Name, e.Value})
				}
			}
		}
	}
	return all
}

// advice says how the hub comes into the place of a csi-attacher that a deployer makes.
func (d deployer) advice(image string) string {
	image = strings.Replace(image, proxyName, hubName, 1)
	return fmt.Sprintf("set its variable %s to the variant of the hub's image that runs as root, %s with -root at the end of its tag. It works in the place of csi-attacher", d.variable, image)
}

// MadeElsewhere returns the workloads of the objects that make a csi-attacher which is not among them, with what to do.
func MadeElsewhere(objects []Object, image string) (texts []string) {
	for _, d := range newInput(objects, "").deployers() {
		texts = append(texts, fmt.Sprintf("%s makes a csi-attacher: %s", d.workload.Object, d.advice(image)))
	}
	return texts
}

// mark is a label or an annotation by which those who manage an object mark it.
type mark struct {
	key   string // a prefix if it ends in '/'
	value string // "" for any
	who   string
	what  string // to do
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
	{"longhorn.io/managed-by", "", "Longhorn makes it", ": it undoes changes. Set the variable CSI_ATTACHER_IMAGE of Deployment longhorn-driver-deployer (value image.csi.attacher of the chart) to the variant of the hub's image that runs as root"},
	{"operator.openshift.io/spec-hash", "", "the operator of OpenShift for this driver (ClusterCSIDriver) makes it", ": it undoes changes. Keep csi-attacher, or install the driver without the operator"},
	{"olm.owner", "", "the Operator Lifecycle Manager makes it", ": it undoes changes. Change the operator's ClusterServiceVersion, or keep csi-attacher"},
}

// renderers are marks of those who write an object from a source. The next write undoes what was changed in the
// cluster alone.
var renderers = []mark{
	{"helm.toolkit.fluxcd.io/", "", "Flux makes this object from a HelmRelease", ""},
	{"kustomize.toolkit.fluxcd.io/", "", "Flux makes this object from a Kustomization", ""},
	{"argocd.argoproj.io/", "", "Argo CD makes this object", ""},
	{"app.kubernetes.io/managed-by", "Helm", "Helm makes this object", ""},
	{"heritage", "Helm", "Helm makes this object", ""},
	{"meta.helm.sh/release-name", "", "Helm makes this object", ""},
}

// managedNamespaces are namespaces in which the provider manages all.
var managedNamespaces = map[string]string{"gke-managed-": "GKE manages it", "openshift-cluster-csi-drivers": "the operator of OpenShift for this driver (ClusterCSIDriver) makes it"}

// find returns the first mark that an object has, nil if it has none.
func find(marks []mark, o Object) *mark {
	for i, m := range marks {
		for _, all := range []map[string]string{o.GetLabels(), o.GetAnnotations()} {
			for _, key := range slices.Sorted(maps.Keys(all)) {
				if (key == m.key || strings.HasSuffix(m.key, "/") && strings.HasPrefix(key, m.key)) && (m.value == "" || strings.EqualFold(all[key], m.value)) {
					return &marks[i]
				}
			}
		}
	}
	return nil
}

// Maker returns who writes the workload from a source, "" if nobody is known.
func (p Plan) Maker() string {
	m := find(renderers, p.Workload.Object)
	if m == nil {
		return ""
	}
	return fmt.Sprintf("%s (%s)", m.who, m.key)
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
	if owner := metav1.GetControllerOf(&o.Unstructured); owner != nil {
		return fmt.Sprintf("%s %s of %s makes it (ownerReferences) and undoes changes: make the change in that object if it can have it, or keep csi-attacher", owner.Kind, owner.Name, owner.APIVersion)
	}
	return ""
}
