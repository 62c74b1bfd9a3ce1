package status

import (
	"strings"
	"testing"
	"time"
)

func TestVolumesThatWereLeftAttachedAreOnThePagesInTheAPIAndCounted(t *testing.T) {
	h := newFakeHub()
	h.engage("a.example.com")
	left := UnownedPublication{VolumeHandle: "vol-7", NodeID: "i-7", Node: "worker-7", PersistentVolume: "pv-7", VolumeAttachment: "csi-7",
		Since: time.Now().Add(-time.Hour).UTC().Truncate(time.Second), Tries: 3, LastError: "array <busy>"}
	h.setDriver("a.example.com", func(d *Driver) { d.Unowned, d.UnownedCount = []UnownedPublication{left}, 1200 })
	u := startServer(t, h)
	for path, words := range map[string][]string{
		"/":                      {"1,200 volumes left attached"},
		"/drivers/a.example.com": {"1,200 volumes are or may be", "vol-7", "i-7", "worker-7", "pv-7", "array &lt;busy&gt;"},
		"/metrics":               {`attach_hub_dangling_publications{driver="a.example.com"} 1200`},
	} {
		_, _, body := get(t, u+path)
		for _, word := range words {
			if !strings.Contains(body, word) {
				t.Errorf("%s does not have %q", path, word)
			}
		}
	}
	if d := fetch[Driver](t, u+"/api/v1/drivers/a.example.com"); d.UnownedCount != 1200 || len(d.Unowned) != 1 || d.Unowned[0] != left {
		t.Errorf("the API says %+v, %d in all", d.Unowned, d.UnownedCount)
	}
}
