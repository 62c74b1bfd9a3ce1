package adopt

import (
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// The hub may create a Lease only in its own namespace. It would wait forever for a Lease that nobody has made.
func TestEntryOfACsiAttacherWithoutLeaderElectionHasTheHubsLease(t *testing.T) {
	for manifest, takesLease := range map[string]bool{"ebs": true, "digitalocean": false} {
		p := plansFor(t, manifest, Options{Mode: ModeProxy, WithoutLeaderElection: true, Secrets: []string{"credentials"}})[0]
		file, err := registry.Parse("drivers.yaml", []byte(strings.Replace(driversHead+"drivers:\n"+p.Entry(), "mode: observe", "mode: active", 1)))
		if got := strings.Contains(p.Entry(), "lease: {namespace: kube-system}"); got != takesLease || err != nil || len(file.Warnings()) > 0 {
			t.Errorf("%s: %v; the entry is %s", manifest, err, p.Entry())
		}
		objects, err := p.DriverObjects()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(objects), "resources: [leases]"); got != takesLease {
			t.Errorf("%s: there are rights on Leases: %v", manifest, got)
		}
		if !strings.Contains(string(objects), "resourceNames: [credentials]") {
			t.Errorf("%s: there are no rights on the Secret", manifest)
		}
	}
}
