package explain_test

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// certificateCures are those of the certificate with which a driver's side answers.
var certificateCures = []cure{
	{
		name: "expired certificate",
		prepare: func(s *cureScene) {
			s.secureDriver(certtest.Request{Names: []string{s.name}, From: time.Now().Add(-2 * time.Hour), To: time.Now().Add(-time.Hour)}, s.name)
		},
		verdict: diagnosis.CertificateExpired, object: "driver {name}", words: []string{"the certificate of the server has expired", "it holds from"},
	},
	{
		name: "wrong SAN",
		prepare: func(s *cureScene) {
			s.secureDriver(certtest.Request{Names: []string{s.name + ".svc"}}, s.name+".other")
		},
		verdict: diagnosis.CertificateName, object: "driver {name}", words: []string{"is for {name}.svc", `not for serverName "{name}.other"`},
		next: "Write `serverName: {name}.svc` under tls in the entry of {name}",
		edit: func(s *cureScene) { s.writeConfig(strings.Replace(s.config, s.name+".other", s.name+".svc", 1)) },
	},
}

// secureDriver puts mutual TLS before the driver, as `adopt` does it: a proxy with a certificate from a Secret. It plays
// cert-manager, which makes a valid certificate if the Secret is gone, and the kubelet that mounts it.
func (s *cureScene) secureDriver(first certtest.Request, serverName string) {
	s.t.Helper()
	driverCA, hubCA := certtest.NewAuthority(s.t, "driver CA"), certtest.NewAuthority(s.t, "hub CA")
	mounted := s.t.TempDir()
	certtest.Write(s.t, mounted, hubCA, driverCA.Issue(first))
	server, err := fakecsi.NewServer(fakecsi.ServerOptions{Backend: s.driver.Backend, Endpoint: "tcp://127.0.0.1:0", TLS: &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: hubCA.Pool(),
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(filepath.Join(mounted, "tls.crt"), filepath.Join(mounted, "tls.key"))
			return &c, err
		}}})
	s.must(err)
	s.must(server.Start())
	s.t.Cleanup(server.Crash)

	secret := "attach-hub-" + s.name + "-tls"
	s.workload.change(func(d *appsv1.Deployment) {
		pod := &d.Spec.Template.Spec
		pod.Containers = append(pod.Containers, corev1.Container{Name: "attach-hub-proxy", Image: "csi-attach-hub:test",
			Args:         []string{"proxy", "--tls-cert=/attach-hub/tls/tls.crt", "--tls-key=/attach-hub/tls/tls.key"},
			VolumeMounts: []corev1.VolumeMount{{Name: "tls", MountPath: "/attach-hub/tls"}}})
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}})
	})
	secrets := s.kube.CoreV1().Secrets(s.name)
	issue := func(ctx context.Context, pair certtest.Pair) error {
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret, Annotations: map[string]string{"cert-manager.io/certificate-name": secret}},
			Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: pair.CertPEM, corev1.TLSPrivateKeyKey: pair.KeyPEM}}, metav1.CreateOptions{})
		return err
	}
	s.must(issue(s.ctx, driverCA.Issue(first)))
	s.play(func(ctx context.Context) {
		if _, err := secrets.Get(ctx, secret, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return
		}
		valid := driverCA.Issue(certtest.Request{Names: first.Names})
		if issue(ctx, valid) == nil {
			certtest.Write(s.t, mounted, hubCA, valid)
		}
	}, func() {})

	f := certtest.Write(s.t, s.t.TempDir(), driverCA, hubCA.Issue(certtest.Request{Names: []string{"hub"}}))
	s.config = testbed.ConfigHead + "drivers:\n  - name: " + s.driver.Name + "\n    endpoint: " + server.Endpoint() +
		"\n    tls: {caFile: " + f.CA + ", certFile: " + f.Cert + ", keyFile: " + f.Key + ", serverName: " + serverName + "} # of the proxy\n"
}
