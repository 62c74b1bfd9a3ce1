package status

import (
	"fmt"
	"strings"
	"testing"
)

func TestADriverIsFoundAmongFiveHundred(t *testing.T) {
	b := openTab(t, newBusyHub(500, 5000))
	const names = "[...document.querySelectorAll('table.drivers tbody th a')].map((a) => a.innerText)"
	for _, width := range []int64{390, 1240} {
		b.size(width, 1000, width < 500)
		b.open("/")
		if got := len(ask[[]string](b, names)); got != 500 {
			t.Errorf("%d wide: %d drivers are listed, want 500", width, got)
		}
		for _, wide := range ask[[]string](b, tooWide) {
			t.Errorf("%d wide: %s", width, wide)
		}
		b.picture(fmt.Sprintf("500-drivers-%d", width))
	}
	wanted := busyName(412)
	b.typeInto("input[name=q]", wanted)
	b.until(fmt.Sprintf("(%s).length === 1", names))
	if got := ask[[]string](b, names); !strings.HasPrefix(got[0], wanted) {
		t.Errorf("the page lists %s, want %s", got[0], wanted)
	}
	b.picture("500-drivers-found")
}
