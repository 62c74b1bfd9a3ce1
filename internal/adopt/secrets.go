package adopt

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// SecretName names a Secret that PersistentVolumes of the driver name in controllerPublishSecretRef. The name "*" is
// all Secrets of the namespace.
type SecretName struct{ Namespace, Name string }

// String returns "namespace/name".
func (s SecretName) String() string { return s.Namespace + "/" + s.Name }

// Parameters of a StorageClass that name the Secret for attaching, the deprecated ones too.
var (
	secretNameKeys      = []string{"csi.storage.k8s.io/controller-publish-secret-name", "csiControllerPublishSecretName"}
	secretNamespaceKeys = []string{"csi.storage.k8s.io/controller-publish-secret-namespace", "csiControllerPublishSecretNamespace"}
)

// secrets returns the Secrets that attaching needs: those that the user names, and those of the driver's StorageClasses
// and PersistentVolumes. notes has those whose names are not known.
func (in input) secrets(p Plan) (all []SecretName, notes []string) {
	add := func(s SecretName) bool {
		if validSecret(s) && !slices.Contains(all, s) {
			all = append(all, s)
		}
		return validSecret(s)
	}
	for _, s := range p.Options.Secrets {
		add(splitSecret(s, p.Workload.Namespace))
	}
	for _, o := range in.objects {
		var class storagev1.StorageClass
		var volume corev1.PersistentVolume
		switch {
		case p.Driver == "":
		case o.GetKind() == "StorageClass" && decode(o, &class) && class.Provisioner == p.Driver:
			s := SecretName{first(class.Parameters, secretNamespaceKeys), first(class.Parameters, secretNameKeys)}
			if s != (SecretName{}) && (strings.Contains(s.Name, "*") || !add(s)) {
				notes = append(notes, terminal.Line(fmt.Sprintf("StorageClass %s names the Secret for attaching by a template, %s: the hub needs the right to read each, add --secret NAMESPACE/NAME, or NAMESPACE/* for all of a namespace",
					class.Name, s)))
			}
		case o.GetKind() == "PersistentVolume" && decode(o, &volume) && volume.Spec.CSI != nil && volume.Spec.CSI.Driver == p.Driver:
			if ref := volume.Spec.CSI.ControllerPublishSecretRef; ref != nil && ref.Name != "*" {
				add(SecretName{ref.Namespace, ref.Name})
			}
		}
	}
	return all, notes
}

// hasClass reports whether the input has a StorageClass of a driver.
func (in input) hasClass(driver string) bool {
	return slices.ContainsFunc(in.objects, func(o Object) bool {
		provisioner, _ := o.Object["provisioner"].(string)
		return o.GetKind() == "StorageClass" && provisioner == driver
	})
}

func first(parameters map[string]string, keys []string) string {
	for _, key := range keys {
		if value, ok := parameters[key]; ok {
			return value
		}
	}
	return ""
}

// splitSecret reads NAME or NAMESPACE/NAME.
func splitSecret(text, namespace string) SecretName {
	if before, name, ok := strings.Cut(text, "/"); ok {
		return SecretName{before, name}
	}
	return SecretName{namespace, text}
}

func validSecret(s SecretName) bool {
	return len(validation.IsDNS1123Label(s.Namespace)) == 0 && (s.Name == "*" || len(validation.IsDNS1123Subdomain(s.Name)) == 0)
}
