package deploy_test

import (
	"strings"
	"testing"
)

// What Helm prints after an installation says what is left to do, and names nothing that a user of the chart alone lacks: neither the
// command nor files of the repository.
func TestNotesOfTheChartSayWhatToDoNext(t *testing.T) {
	const drivers = "drivers: {a.example: {endpoint: 'unix:///a'}}\n"
	for _, c := range []struct {
		release       release
		values        string
		says, saysNot []string
	}{
		{release{}, "", []string{"drivers is empty", "exec -i deployment/csi-attach-hub -- /csi-attach-hub adopt -", "/csi-attach-hub status --server"},
			[]string{"privileged", "certificates", "older than"}},
		{release{namespace: "storage-hub"}, drivers + "fullnameOverride: mine\n", []string{"kubectl -n storage-hub exec deployment/mine -- ", "1 driver"}, []string{"is empty"}},
		{release{}, "proxies: {enabled: true}", []string{"certificates"}, nil},
		{release{}, "hostSockets: {enabled: true}", []string{"pod-security.kubernetes.io/enforce=privileged"}, nil},
		{release{}, "hostSockets: {enabled: true}\nnamespace: {create: true}", nil, []string{"privileged"}},
		{release{kubeVersion: "v1.29.4"}, "", []string{"v1.29.4 is older than Kubernetes 1.30"}, nil},
	} {
		files, err := c.release.files(t, parseValues(t, c.values))
		if err != nil {
			t.Fatal(err)
		}
		notes := files["csi-attach-hub/templates/NOTES.txt"]
		for _, text := range c.says {
			if !strings.Contains(notes, text) {
				t.Errorf("%q: the notes lack %q:\n%s", c.values, text, notes)
			}
		}
		for _, text := range append(c.saysNot, " deploy/", "  csi-attach-hub ") {
			if strings.Contains(notes, text) {
				t.Errorf("%q: the notes have %q:\n%s", c.values, text, notes)
			}
		}
	}
}
