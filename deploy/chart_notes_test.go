package deploy_test

import (
	"regexp"
	"strings"
	"testing"
)

// What Helm prints after an installation says what is left to do, and no more.
func TestNotesOfTheChartSayWhatToDoNext(t *testing.T) {
	const drivers = "drivers: [{name: a.example, endpoint: 'unix:///a'}]\n"
	for _, c := range []struct {
		release       release
		values        string
		says, saysNot []string
	}{
		{release{}, "", []string{"drivers is empty", "csi-attach-hub status\n", "/csi-attach-hub preflight", "deploy/HANDOVER.md"},
			[]string{"--hub-namespace", "privileged", "certificates"}},
		{release{namespace: "storage-hub"}, drivers, []string{"status --hub-namespace storage-hub\n", "-n storage-hub", "1 driver"}, []string{"is empty"}},
		{release{}, "proxies: {enabled: true}", []string{"Drivers in other Pods"}, nil},
		{release{}, "hostSockets: {enabled: true}", []string{"pod-security.kubernetes.io/enforce=privileged"}, nil},
		{release{}, "hostSockets: {enabled: true}\nnamespace: {create: true}", nil, []string{"privileged"}},
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
		for _, text := range c.saysNot {
			if strings.Contains(notes, text) {
				t.Errorf("%q: the notes have %q:\n%s", c.values, text, notes)
			}
		}
	}
}

// mine.yaml of the README makes what the overlay for drivers in other Pods makes.
func TestValuesOfTheREADMEMakeTheOverlayOfProxies(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(# mine.yaml\n.*?)```").FindSubmatch(readFile(t, "README.md"))
	if block == nil {
		t.Fatal("the README has no mine.yaml")
	}
	mine := mergeValues(parseValues(t, string(block[1])), readValues(t, "overlays/proxies/drivers.yaml"))
	made := byName(t, release{}.render(t, mine))
	for name := range byName(t, build(t, "overlays/proxies")) {
		if made[name] == nil && name != "Namespace /csi-attach-hub" {
			t.Errorf("the values of the README make no %s", name)
		}
	}
}
