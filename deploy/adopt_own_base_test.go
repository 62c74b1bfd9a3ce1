package deploy_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// A base in Git often gets its namespace only from an overlay, or from kubectl.
func TestPatchesOfAdoptHoldForABaseWithoutANamespace(t *testing.T) {
	manifest := readFile(t, adoptManifests+"/ebs.yaml")
	p := adoptProgram{t: t, binary: hubBinary(t), manifest: manifest}
	for _, namespace := range []string{"", "elsewhere"} {
		out := filepath.Join(t.TempDir(), "out")
		p.run("-o", "kustomize="+out)
		own := bytes.ReplaceAll(manifest, []byte("\n  namespace: kube-system\n"), []byte("\n"))
		for name, content := range map[string]string{"own.yaml": string(own), "kustomization.yaml": "namespace: '" + namespace + "'\nresources: [own.yaml]\n"} {
			if err := os.WriteFile(filepath.Join(out, "original", name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for step, want := range map[string]bool{"observe": true, "active": false} {
			found := false
			for key, o := range built(t, filepath.Join(out, step)) {
				if !strings.HasPrefix(key, "Deployment/"+namespace+"/") {
					continue
				}
				found = true
				content, err := yaml.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				text := string(content)
				if hasProxy := strings.Contains(text, "name: attach-hub-ebs-csi-aws-com\n"); !hasProxy || strings.Contains(text, "name: csi-attacher\n") != want {
					t.Errorf("namespace %q, %s: has the proxy: %t\n%s", namespace, step, hasProxy, text)
				}
			}
			if !found {
				t.Errorf("namespace %q, %s: has no Deployment", namespace, step)
			}
		}
	}
}
