package explain

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// issuedBy is the annotation of a Secret that cert-manager makes and makes again if it is deleted
// (cert-manager.io/docs/reference/annotations).
const issuedBy = "cert-manager.io/certificate-name"

// CertificateSecret names a Secret from which a side of the connection to a driver has its certificate.
type CertificateSecret struct {
	Namespace, Name string
	Issued          bool // by cert-manager
}

// certificates finds the Secrets of both sides: that of `csi-attach-hub proxy` beside the driver, and that of the hub.
func (g *gatherer) certificates(ctx context.Context, v *Volume) {
	if c := v.Workload; c != nil {
		pod := &c.Spec.Template.Spec
		v.Certificates.Driver = g.certificate(ctx, c.Namespace, mountedSecret(pod, func(c corev1.Container) string { return flagValue(c, "tls-cert") }))
	}
	for _, pod := range g.hubPods(ctx) {
		if file := ownCertificate(v); file != "" {
			v.Certificates.Hub = g.certificate(ctx, pod.Namespace, mountedSecret(&pod.Spec, func(corev1.Container) string { return file }))
		}
	}
}

// expiredHere are the texts about the certificate of the hub's own side.
var expiredHere = regexp.MustCompile(`the certificate in (\S+) expired at |client certificate in (\S+), it has expired: renew it`)

// ownCertificate returns the file of the hub that has the expired certificate, "" if it is that of the driver's side.
func ownCertificate(v *Volume) string {
	if v.Served == nil {
		return ""
	}
	if m := expiredHere.FindStringSubmatch(v.Served.ConnectionError.Text); m != nil {
		return m[1] + m[2]
	}
	return ""
}

// certificate asks who made a Secret, without its contents.
func (g *gatherer) certificate(ctx context.Context, namespace, name string) CertificateSecret {
	made := one(ctx, g, "Secret metadata", namespace, name, func(ctx context.Context, name string, _ metav1.GetOptions) (*metav1.PartialObjectMetadata, error) {
		var m metav1.PartialObjectMetadata
		return &m, g.Kube.CoreV1().RESTClient().Get().Namespace(namespace).Resource("secrets").Name(name).
			SetHeader("Accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").Do(ctx).Into(&m)
	})
	return CertificateSecret{namespace, name, made.Value() != nil && made.Value().Annotations[issuedBy] != ""}
}

// mountedSecret returns the name of the Secret with a file of a container, "" if it comes from elsewhere.
func mountedSecret(pod *corev1.PodSpec, fileOf func(corev1.Container) string) string {
	for _, c := range pod.Containers {
		v := mountedVolume(pod, c, fileOf(c))
		if v == nil {
			continue
		}
		if v.Secret != nil {
			return v.Secret.SecretName
		}
		if v.Projected != nil {
			for _, source := range v.Projected.Sources {
				if s := source.Secret; s != nil && (len(s.Items) == 0 || slices.ContainsFunc(s.Items, func(k corev1.KeyToPath) bool { return k.Path == path.Base(fileOf(c)) })) {
					return s.Name
				}
			}
		}
	}
	return ""
}

// renew cures an expired certificate: cert-manager makes a Secret anew that was deleted.
func (w *walk) renew(f *Finding) {
	secret, side := w.Certificates.Driver, "the driver's side"
	if ownCertificate(w.Volume) != "" {
		secret, side = w.Certificates.Hub, "the hub"
	}
	switch {
	case secret.Name == "":
	case secret.Issued:
		f.Next = fmt.Sprintf("Delete Secret %s/%s, from which %s has the certificate: cert-manager issues it again, and it is used a minute later. If cert-manager does not, look at the Certificate. %s",
			secret.Namespace, secret.Name, side, f.Next)
		f.Commands = diagnosis.Commands([]string{"kubectl", "-n", secret.Namespace, "delete", "secret", secret.Name})
	default:
		f.Next = fmt.Sprintf("Put a new certificate into Secret %s/%s, from which %s has it. %s", secret.Namespace, secret.Name, side, f.Next)
	}
}

// names are those of the certificate and the expected one, in an error of hub/csiclient.
var certificateNames = regexp.MustCompile(`the certificate of the server is for (.+?) and not for serverName "([^"]*)"`)

// hostName is a name that tls.serverName can be.
var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

// acceptName cures a tls.serverName that the certificate of the driver's side does not have, if there is one name to choose.
func (w *walk) acceptName(f *Finding) {
	if w.Served == nil {
		return
	}
	m := certificateNames.FindStringSubmatch(w.Served.ConnectionError.Text)
	if m == nil {
		return
	}
	names := strings.Split(m[1], ", ")
	if service, namespace := serviceOf(w.Volume); service != "" {
		host := service + "." + namespace + ".svc"
		if slices.Contains(names, host) {
			names = []string{host}
		}
	}
	if len(names) == 1 && hostName.MatchString(names[0]) {
		f.Next = fmt.Sprintf("Write `serverName: %s` under tls in the entry of %s in drivers.yaml, or put a certificate for the expected name there.", names[0], w.Driver)
	}
}
