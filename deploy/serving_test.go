package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// withServingCertificate returns overlays/proxies with what the README says to put into an overlay.
func withServingCertificate(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	dir := t.TempDir()
	for name, head := range map[string]string{"serving.yaml": "", "kustomization.yaml": "resources: [" + relative(t, dir, "overlays/proxies") + ", serving.yaml]\n"} {
		block := regexp.MustCompile("(?s)```yaml\n# " + regexp.QuoteMeta(name) + ".*?```").Find(readFile(t, "README.md"))
		if block == nil {
			t.Fatalf("the README has no %s", name)
		}
		content := head + string(block[len("```yaml\n"):len(block)-len("```")])
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return build(t, dir)
}

func TestCertificateOfTheREADMEReachesTheHubAndPrometheus(t *testing.T) {
	objects := withServingCertificate(t)
	certificate := find(t, objects, "Certificate", "csi-attach-hub-serving").Object
	secret, _, _ := unstructured.NestedString(certificate, "spec", "secretName")
	names, _, _ := unstructured.NestedStringSlice(certificate, "spec", "dnsNames")
	issuer, _, _ := unstructured.NestedString(certificate, "spec", "issuerRef", "name")
	find(t, objects, "Issuer", issuer)

	pod := as[appsv1.Deployment](t, find(t, objects, "Deployment", "csi-attach-hub")).Spec.Template.Spec
	volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == secret })
	if volume < 0 {
		t.Fatalf("no volume has the Secret %s", secret)
	}
	mounts := pod.Containers[0].VolumeMounts
	mount := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == pod.Volumes[volume].Name })
	if mount < 0 {
		t.Fatalf("the volume %s is not mounted", pod.Volumes[volume].Name)
	}
	for flag, file := range map[string]string{"--http-tls-cert": "tls.crt", "--http-tls-key": "tls.key"} {
		if got, want := argument(t, pod.Containers[0].Args, flag), mounts[mount].MountPath+"/"+file; got != want {
			t.Errorf("%s is %s, want %s", flag, got, want)
		}
	}

	endpoints, _, _ := unstructured.NestedSlice(find(t, objects, "ServiceMonitor", "csi-attach-hub").Object, "spec", "endpoints")
	endpoint := endpoints[0].(map[string]any)
	if _, skips, _ := unstructured.NestedBool(endpoint, "tlsConfig", "insecureSkipVerify"); skips {
		t.Error("it is not verified")
	}
	if ca, _, _ := unstructured.NestedString(endpoint, "tlsConfig", "ca", "secret", "name"); ca != secret {
		t.Errorf("it is verified by the Secret %q, want %s", ca, secret)
	}
	if name, _, _ := unstructured.NestedString(endpoint, "tlsConfig", "serverName"); !slices.Contains(names, name) {
		t.Errorf("it is asked for %q, and named %v", name, names)
	}
}

// relative is the way from one folder to another, as kustomize takes it.
func relative(t *testing.T, from, to string) string {
	t.Helper()
	to, err := filepath.Abs(to)
	if err != nil {
		t.Fatal(err)
	}
	if from, err = filepath.EvalSymlinks(from); err != nil {
		t.Fatal(err)
	}
	way, err := filepath.Rel(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return way
}
