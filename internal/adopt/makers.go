package adopt

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// operators are programs that make a csi-attacher and restore it, each with its setting for the image of csi-attacher.
var operators = []struct{ workload, owner, setting string }{ // part of the operator's name, kind of the object that it reads
	{"rook-ceph-operator", "", "ROOK_CSI_ATTACHER_IMAGE in the ConfigMap rook-ceph-operator-config (Rook without this setting: attacher in the ConfigMap rook-csi-operator-image-set-configmap)"},
	{"ceph-csi-operator", "Driver of csi.ceph.io", "the key attacher of the ConfigMap that imageSet of the Driver or OperatorConfig names (if Rook writes that: ROOK_CSI_ATTACHER_IMAGE in rook-ceph-operator-config)"},
	{"trident-operator", "TridentOrchestrator of trident.netapp.io", "the variable TRIDENT_CSI_SIDECAR_ATTACHER_IMAGE of the Deployment trident-operator"},
	{"ibm-block-csi-operator", "IBMBlockCSI of csi.ibm.com", "csi-attacher in spec.sidecars of the IBMBlockCSI"},
	{"piraeus-operator", "LinstorCluster of piraeus.io", "csi-attacher of 0_sig_storage_images.yaml in the ConfigMap piraeus-operator-image-config"},
	{"longhorn-driver-deployer", "", "the variable CSI_ATTACHER_IMAGE of the Deployment longhorn-driver-deployer"},
}

// maker is a workload that makes the workload of a csi-attacher.
type maker struct {
	*Workload
	setting, image string // for the image of csi-attacher; image is "" if the workload does not say it
}

func (in input) makers() (all []maker) {
	for _, w := range in.workloads {
		m := maker{Workload: w}
		for _, o := range operators {
			if strings.Contains(w.GetName(), o.workload) {
				m.setting = o.setting
			}
		}
		for _, c := range w.containers() {
			for _, e := range c.Env {
				if strings.HasSuffix(e.Name, "ATTACHER_IMAGE") {
					m.setting, m.image = fmt.Sprintf("the variable %s of the %s %s", e.Name, w.GetKind(), w.GetName()), e.Value
				}
			}
		}
		if m.setting != "" {
			all = append(all, m)
		}
	}
	return all
}

// throughSetting says how the hub comes into the place of a csi-attacher that an operator makes.
func (o Options) throughSetting(setting string) string {
	image := strings.Replace(o.Image, proxyName, hubName, 1)
	return fmt.Sprintf("set %s to the variant of the hub's image that runs as root, %s with -root at the end of its tag. It works in the place of csi-attacher", setting, image)
}

// MadeElsewhere says, for objects without a csi-attacher, who makes it, or that none is needed.
func MadeElsewhere(objects []Object, o Options) (texts []string) {
	in := newInput(objects, "")
	for _, m := range in.makers() {
		texts = append(texts, fmt.Sprintf("%s makes a csi-attacher: %s", m.Object, o.throughSetting(terminal.Line(m.setting))))
	}
	for _, name := range slices.Sorted(maps.Keys(in.attaches)) {
		if !in.attaches[name] {
			texts = append(texts, fmt.Sprintf("CSIDriver %s has attachRequired: false: its volumes need no csi-attacher, and no hub", name))
		}
	}
	if len(texts) == 0 {
		texts = []string{"an operator may make it: deploy/DRIVERS.md has the settings of operators. A driver whose CSIDriver object has attachRequired: false needs none"}
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

const byHelm = "Helm"

const providerWay = ": it undoes changes. Install the driver yourself in place of the managed one, and add --unmanaged, or keep its csi-attacher"

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
	{"helm.toolkit.fluxcd.io/", "", "Flux", ""},
	{"kustomize.toolkit.fluxcd.io/", "", "Flux", ""},
	{"argocd.argoproj.io/", "", "Argo CD", ""},
	{"app.kubernetes.io/managed-by", "Helm", byHelm, ""},
	{"heritage", "Helm", byHelm, ""},
	{"meta.helm.sh/release-name", "", byHelm, ""},
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
	switch m := find(renderers, p.Workload.Object); {
	case m != nil:
		return fmt.Sprintf("%s (%s)", m.who, m.key)
	case p.Workload.Chart != "":
		return fmt.Sprintf("%s (# Source: %s)", byHelm, p.Workload.Chart)
	}
	return ""
}

// ByHelm reports whether a release of Helm has the workload.
func (p Plan) ByHelm() bool { return strings.HasPrefix(p.Maker(), byHelm) }

// managedBy returns who undoes changes of an object, and what to do instead, "" if nobody is known.
func (o Options) managedBy(object Object) string {
	if m := find(restored, object); m != nil && (m.what != providerWay || !o.Unmanaged) {
		return fmt.Sprintf("%s (%s)%s", m.who, m.key, m.what)
	}
	for prefix, who := range managedNamespaces {
		if strings.HasPrefix(object.GetNamespace(), prefix) && !o.Unmanaged {
			return fmt.Sprintf("%s (namespace %s)%s", who, object.GetNamespace(), providerWay)
		}
	}
	if owner := metav1.GetControllerOf(&object.Unstructured); owner != nil {
		what := "make the change in that object if it can have it, or keep csi-attacher"
		for _, known := range operators {
			if kind, group, _ := strings.Cut(known.owner, " of "); owner.Kind == kind && strings.HasPrefix(owner.APIVersion, group+"/") || owner.Kind == "Deployment" && strings.Contains(owner.Name, known.workload) {
				what = o.throughSetting(known.setting)
			}
		}
		return fmt.Sprintf("%s %s of %s makes it (ownerReferences) and undoes changes: %s", owner.Kind, owner.Name, owner.APIVersion, what)
	}
	return ""
}
