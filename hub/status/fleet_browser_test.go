package status

import (
	"strings"
	"testing"
	"time"
)

// The picture in the README: `make pictures` takes it.
func TestABrokenDriverAmongManyIsSeenFirst(t *testing.T) {
	b := openTab(t, newFleet(time.Now()))
	b.size(1240, 1108, false)
	for _, scheme := range []string{"light", "dark"} {
		b.look(scheme)
		b.open("/")
		if got := b.text("h1"); !strings.Contains(got, " 1 driver broken;") {
			t.Errorf("the headline is %q", got)
		}
		for row, want := range []string{"csi.vsphere.vmware.com", "ebs.csi.aws.com", "disk.csi.azure.com"} {
			if got := ask[[]string](b, "[...document.querySelectorAll('table.drivers tbody a')].filter((a) => a.closest('th')).map((a) => a.innerText)")[row]; got != want {
				t.Errorf("row %d is %s, want %s", row, got, want)
			}
		}
		b.picture("status-" + scheme)
	}
}
