package adopt

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Parameters of a StorageClass that name the Secret for attaching, the deprecated ones too.
var (
	secretNameKeys      = []string{"csi.storage.k8s.io/controller-publish-secret-name", "csiControllerPublishSecretName"}
	secretNamespaceKeys = []string{"csi.storage.k8s.io/controller-publish-secret-namespace", "csiControllerPublishSecretNamespace"}
)

// secrets returns the Secrets that attaching needs: those that the user names, and those of the driver's StorageClasses
// and PersistentVolumes. notes has those whose names are not known.
func (in input) secrets(p Plan) (all []SecretName, notes []string) {
	seen := map[SecretName]bool{}
	add := func(s SecretName) bool {
		if validSecret(s) && !seen[s] {
			seen[s] = true
			all = append(all, s)
		}
		return validSecret(s)
	}
	for _, s := range p.Options.Secrets {
		add(splitSecret(s, p.Workload.Namespace))
	}
	for _, o := range in.objects {
		switch {
		case p.Driver == "":
		case o.GetKind() == "StorageClass":
			var class storagev1.StorageClass
			if !decode(o, &class) || class.Provisioner != p.Driver {
				continue
			}
			s := SecretName{first(class.Parameters, secretNamespaceKeys), first(class.Parameters, secretNameKeys)}
			if s != (SecretName{}) && !add(s) {
				notes = append(notes, fmt.Sprintf("StorageClass %s names the Secret for attaching by a template, %s: the hub needs the right to read each, add --secret NAMESPACE/NAME for them",
					class.Name, s.String()))
			}
		case o.GetKind() == "PersistentVolume":
			var volume corev1.PersistentVolume
			if decode(o, &volume) && volume.Spec.CSI != nil && volume.Spec.CSI.Driver == p.Driver && volume.Spec.CSI.ControllerPublishSecretRef != nil {
				add(SecretName{volume.Spec.CSI.ControllerPublishSecretRef.Namespace, volume.Spec.CSI.ControllerPublishSecretRef.Name})
			}
		}
	}
	return all, notes
}

// hasClass reports whether the input has a StorageClass of a driver.
func (in input) hasClass(driver string) bool {
	for _, o := range in.objects {
		if provisioner, _ := o.Object["provisioner"].(string); o.GetKind() == "StorageClass" && provisioner == driver {
			return true
		}
	}
	return false
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
	return len(validation.IsDNS1123Label(s.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(s.Name)) == 0
}
