package adopt

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// secretKey and "-name" or "-namespace" are the parameters of a StorageClass for the Secret of attaching.
const secretKey = "csi.storage.k8s.io/controller-publish-secret"

// addSecrets adds the Secrets that attaching needs, as NAMESPACE/NAME: those that the user names, and those of the
// driver's StorageClasses and PersistentVolumes. It notes those whose names the manifests do not say.
func (p *Plan) addSecrets(in input) {
	add := func(secret string) bool {
		valid := validSecret(secret)
		if valid && !slices.Contains(p.Secrets, secret) {
			p.Secrets = append(p.Secrets, secret)
		}
		return valid
	}
	for _, secret := range p.Options.Secrets {
		add(inNamespace(secret, p.Workload.Namespace))
	}
	said := len(p.Secrets) > 0
	var templates []string // the StorageClasses that name a Secret for each volume
	for _, o := range in.objects {
		var class storagev1.StorageClass
		var volume corev1.PersistentVolume
		switch {
		case o.GetKind() == "StorageClass" && decode(o, &class) == nil && class.Provisioner == p.Driver:
			said = true
			secret := class.Parameters[secretKey+"-namespace"] + "/" + class.Parameters[secretKey+"-name"]
			if secret != "/" && (strings.Contains(secret, "*") || !add(secret)) {
				templates = append(templates, fmt.Sprintf("%s (%s)", class.Name, secret))
			}
		case o.GetKind() == "PersistentVolume" && decode(o, &volume) == nil && volume.Spec.CSI != nil && volume.Spec.CSI.Driver == p.Driver:
			if ref := volume.Spec.CSI.ControllerPublishSecretRef; ref != nil && ref.Name != "*" {
				said = add(ref.Namespace+"/"+ref.Name) || said
			}
		}
	}
	p.note(Modes, len(templates) > 0, "the Secret for attaching is a template in StorageClass %s: the hub needs the right to read each, add --secret NAMESPACE/NAME, or NAMESPACE/* for all of a namespace", strings.Join(templates, ", "))
	p.note(proxyOnly, !said, "the manifest does not say whether attaching needs a Secret; add --secret NAMESPACE/NAME for each controllerPublishSecretRef that PersistentVolumes of the driver have")
}

// QuotedSecrets returns the Secrets as a list in YAML.
func (p Plan) QuotedSecrets() string {
	return strings.ReplaceAll(fmt.Sprintf("%q", p.Secrets), `" "`, `", "`)
}

// inNamespace returns NAMESPACE/NAME of a Secret for which the user may have written NAME.
func inNamespace(secret, namespace string) string {
	if strings.Contains(secret, "/") {
		return secret
	}
	return namespace + "/" + secret
}

// validSecret reports whether a text is NAMESPACE/NAME of a Secret, or NAMESPACE/* for all of a namespace.
func validSecret(text string) bool {
	namespace, name, _ := strings.Cut(text, "/")
	return len(validation.IsDNS1123Label(namespace)) == 0 && (name == "*" || len(validation.IsDNS1123Subdomain(name)) == 0)
}
