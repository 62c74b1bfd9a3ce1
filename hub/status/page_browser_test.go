package status

import (
	"fmt"
	"testing"
)

func TestPagesFitWideAndNarrowWindowsInLightAndDark(t *testing.T) {
	b := openTab(t, newBusyHub(100, 10000))
	pages := map[string]string{
		"drivers": "/", "attachments": "/attachments", "broken-driver": "/drivers/" + busyName(1), "observed-driver": "/drivers/" + busyName(2),
		"stuck": "/attachments/" + vaName(1), "failing": "/attachments/" + vaName(3),
	}
	for _, scheme := range []string{"light", "dark"} {
		b.look(scheme)
		for _, width := range []int64{360, 800, 1440} {
			b.size(width, 1000, width < 500)
			for name, path := range pages {
				b.open(path)
				if got := ask[int64](b, "document.documentElement.scrollWidth"); got > width {
					t.Errorf("%s is %d wide in a window of %d", name, got, width)
				}
				b.picture(fmt.Sprintf("%s-%s-%d", name, scheme, width))
			}
		}
	}
}
