package deploy_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/certtest"
)

// certManager makes the Secrets of Certificates as cert-manager does.
type certManager struct {
	t       *testing.T // of the authorities: they outlive a row of a table
	client  kubernetes.Interface
	dynamic dynamic.Interface

	mu          sync.Mutex
	authorities map[string]*certtest.Authority // guarded by mu; by "namespace/name" of the Secret
	signed      map[string]bool                // guarded by mu; by "namespace/name" of the Certificate
}

func newCertManager(t *testing.T, client kubernetes.Interface, dynamic dynamic.Interface) *certManager {
	return &certManager{t: t, client: client, dynamic: dynamic, authorities: map[string]*certtest.Authority{}, signed: map[string]bool{}}
}

// sign makes the Secrets of the named Certificates of a namespace, authorities first.
func (m *certManager) sign(ctx context.Context, namespace string, names ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	list, err := m.kind("certificates").Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, authorities := range []bool{true, false} {
		for _, c := range list.Items {
			isCA, _, _ := unstructured.NestedBool(c.Object, "spec", "isCA")
			if id := namespace + "/" + c.GetName(); isCA == authorities && slices.Contains(names, c.GetName()) && !m.signed[id] {
				if err := m.issue(ctx, c, isCA); err != nil {
					return fmt.Errorf("certificate %s: %w", id, err)
				}
				m.signed[id] = true
			}
		}
	}
	return nil
}

func (m *certManager) kind(plural string) dynamic.NamespaceableResourceInterface {
	return m.dynamic.Resource(schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: plural})
}

// usages are those that a certificate of the hub or of a proxy may have, in cert-manager's words.
var usages = map[string]x509.ExtKeyUsage{"server auth": x509.ExtKeyUsageServerAuth, "client auth": x509.ExtKeyUsageClientAuth}

func (m *certManager) issue(ctx context.Context, c unstructured.Unstructured, isCA bool) error {
	namespace, spec := c.GetNamespace(), c.Object["spec"].(map[string]any)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: spec["secretName"].(string), Namespace: namespace}}
	reference := spec["issuerRef"].(map[string]any)["name"].(string)
	issuer, err := m.kind("issuers").Namespace(namespace).Get(ctx, reference, metav1.GetOptions{})
	if err != nil {
		return err
	}
	_, selfSigned, _ := unstructured.NestedMap(issuer.Object, "spec", "selfSigned")
	from, _, _ := unstructured.NestedString(issuer.Object, "spec", "ca", "secretName")
	signer := m.authorities[namespace+"/"+from]
	switch {
	case isCA && selfSigned:
		authority := certtest.NewAuthority(m.t, spec["commonName"].(string))
		m.authorities[namespace+"/"+secret.Name] = authority
		secret.Data = map[string][]byte{"tls.crt": authority.PEM, "ca.crt": authority.PEM}
	case !isCA && signer != nil:
		r := certtest.Request{}
		r.Names, _, _ = unstructured.NestedStringSlice(spec, "dnsNames")
		words, _, _ := unstructured.NestedStringSlice(spec, "usages")
		for _, word := range words {
			if usage, ok := usages[word]; ok {
				r.Usages = append(r.Usages, usage)
			}
		}
		pair := signer.Issue(r)
		secret.Data = map[string][]byte{"tls.crt": pair.CertPEM, "tls.key": pair.KeyPEM, "ca.crt": signer.PEM}
	default:
		return fmt.Errorf("issuer %s cannot sign it", reference)
	}
	secrets := m.client.CoreV1().Secrets(namespace)
	_ = secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{}) // of an earlier test
	_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	return err
}

// exchange copies the certificate of an authority into a ConfigMap of another namespace, as kubectl create configmap
// does, and leaves its other keys.
func (m *certManager) exchange(ctx context.Context, namespace, secret, toNamespace, configMap, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, err := m.client.CoreV1().Secrets(namespace).Get(ctx, secret, metav1.GetOptions{})
	if err != nil {
		return err
	}
	maps := m.client.CoreV1().ConfigMaps(toNamespace)
	to, err := maps.Get(ctx, configMap, metav1.GetOptions{})
	if err != nil {
		to = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configMap}, Data: map[string]string{key: string(from.Data["tls.crt"])}}
		_, err = maps.Create(ctx, to, metav1.CreateOptions{})
		return err
	}
	if to.Data == nil {
		to.Data = map[string]string{}
	}
	to.Data[key] = string(from.Data["tls.crt"])
	_, err = maps.Update(ctx, to, metav1.UpdateOptions{})
	return err
}
