package deploy_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/certtest"
)

// certManager makes the Secrets of Certificates as cert-manager does.
type certManager struct {
	t           *testing.T
	client      kubernetes.Interface
	dynamic     dynamic.Interface
	authorities map[string]*certtest.Authority // by "namespace/name" of the Secret
}

// startCertManager makes the Secrets of all Certificates until the test ends. It removes the Certificates of earlier tests.
func startCertManager(ctx context.Context, t *testing.T, client kubernetes.Interface, dynamic dynamic.Interface) {
	t.Helper()
	m := &certManager{t: t, client: client, dynamic: dynamic, authorities: map[string]*certtest.Authority{}}
	m.each(ctx, func(c unstructured.Unstructured) error {
		return m.kind("certificates").Namespace(c.GetNamespace()).Delete(ctx, c.GetName(), metav1.DeleteOptions{})
	})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			m.each(ctx, func(c unstructured.Unstructured) error { return m.issue(ctx, c) }) // what fails is tried again: its issuer can come later
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func (m *certManager) each(ctx context.Context, do func(unstructured.Unstructured) error) {
	all, err := m.kind("certificates").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, c := range all.Items {
		_ = do(c)
	}
}

func (m *certManager) kind(plural string) dynamic.NamespaceableResourceInterface {
	return m.dynamic.Resource(schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: plural})
}

// usages are those that a certificate of the hub or of a proxy may have, in cert-manager's words.
var usages = map[string]x509.ExtKeyUsage{"server auth": x509.ExtKeyUsageServerAuth, "client auth": x509.ExtKeyUsageClientAuth}

func (m *certManager) issue(ctx context.Context, c unstructured.Unstructured) error {
	namespace, spec := c.GetNamespace(), c.Object["spec"].(map[string]any)
	if c.Object["status"] != nil {
		return nil
	}
	isCA := spec["isCA"] == true
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
	if _, err = secrets.Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return err
	}
	ready := []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	_, err = m.kind("certificates").Namespace(namespace).Patch(ctx, c.GetName(), types.MergePatchType, ready, metav1.PatchOptions{})
	return err
}
