package status

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestNamesAreNotBrokenWhereThereIsRoom(t *testing.T) {
	h := newFakeHub()
	h.engage("hanging.demo.csi.example.com")
	b := openTab(t, h)
	b.size(1440, 1000, false)
	b.open("/")
	b.picture("few")
	if got := ask[int](b, "document.querySelector('table.drivers tbody tr').offsetHeight"); got > 45 {
		t.Errorf("the row of a driver that is well is %d high", got)
	}
}

func TestTextsAreReadableInLightAndDark(t *testing.T) {
	b := openTab(t, newTroubledHub(time.Now()))
	for _, path := range []string{"/", "/attachments", "/drivers/" + troubled.lost, "/drivers/" + troubled.hanging, "/drivers/" + troubled.observed, "/drivers/" + troubled.paused, "/attachments/" + vaName(1000)} {
		b.open(path)
		for _, scheme := range []string{"light", "dark"} {
			b.look(scheme)
			for _, poor := range ask[[]string](b, poorContrast) {
				t.Errorf("%s in %s: %s", path, scheme, poor)
			}
		}
	}
}

// poorContrast lists the texts whose contrast with what is behind them is below 4.5, as
// WCAG asks for.
const poorContrast = `(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] > 250) return c; } return [255, 255, 255]; };
  const poor = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = texts.nextNode(); n; n = texts.nextNode()) {
    const e = n.parentElement;
    if (!n.data.trim() || !e.checkVisibility() || e.closest('svg, .unseen')) continue;
    const [a, b] = [light(rgba(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) poor.add(contrast.toFixed(1) + ' ' + e.tagName + '.' + e.className + ' ' + n.data.trim().slice(0, 30));
  }
  return [...poor];
})()`

func TestAFailureIsShownWithoutALoadOfThePage(t *testing.T) {
	h := newBusyHub(30, 300)
	b := openTab(t, h)
	b.open("/")
	ask[any](b, "window.loadedOnce = true")
	name := busyName(17)
	changed := time.Now()
	h.setDriver(name, func(d *Driver) {
		d.State, d.Up, d.Reason, d.Since, d.Lease.Mine = "Lost", false, "connection refused", changed, true
	})
	b.until(fmt.Sprintf("document.querySelector('tr.row-broken a[href=%q]') !== null", "/drivers/"+name))
	t.Logf("shown after %s", time.Since(changed))
	if !ask[bool](b, "window.loadedOnce === true") {
		t.Error("the page was loaded as a whole")
	}
	if got := b.text("h1"); !strings.Contains(got, "2 drivers broken") {
		t.Errorf("the headline is %q", got)
	}
	if got := ask[string](b, "document.title"); !strings.HasPrefix(got, "2 drivers broken") {
		t.Errorf("the title is %q", got)
	}
}

// The bound of what people wait for, without the machine's share: what the page waits
// before it asks again.
func TestThePageAsksAgainWithinTwoSeconds(t *testing.T) {
	script, err := assets.ReadFile("page/page.js")
	if err != nil {
		t.Fatal(err)
	}
	var period int
	_, after, found := strings.Cut(string(script), "const period = ")
	if _, err := fmt.Sscanf(after, "%d;", &period); !found || err != nil || period > 1800 || period < 500 {
		t.Errorf("the period is %d ms (%v)", period, err)
	}
}

func TestARefreshKeepsWhereOneReads(t *testing.T) {
	h := newBusyHub(60, 600)
	b := openTab(t, h)
	b.size(1440, 600, false)
	b.open("/")
	ask[any](b, `
		document.querySelector('a[href="/drivers/`+busyName(9)+`"]').focus();
		document.querySelector('input[name=q]').value = 'half typed';
		window.scrollTo(0, 700)`)
	before := ask[string](b, "document.getElementById('asof').innerText")
	b.until(fmt.Sprintf("document.getElementById('asof').innerText !== %q", before))
	for what, expression := range map[string]string{
		"scroll":   "window.scrollY === 700",
		"focus":    fmt.Sprintf("document.activeElement.getAttribute('href') === %q", "/drivers/"+busyName(9)),
		"the form": "document.querySelector('input[name=q]').value === 'half typed'",
	} {
		if !ask[bool](b, expression) {
			t.Errorf("the refresh lost %s", what)
		}
	}
}

func TestARefreshKeepsWhatIsOpen(t *testing.T) {
	b := openTab(t, newTroubledHub(time.Now()))
	b.open("/drivers/" + troubled.left)
	ask[any](b, "document.querySelector('details').open = true")
	before := ask[string](b, "document.getElementById('asof').innerText")
	b.until(fmt.Sprintf("document.getElementById('asof').innerText !== %q", before))
	if !ask[bool](b, "document.querySelector('details').open") {
		t.Error("the refresh closed what was open")
	}
}

func TestTypingFiltersAndTheFilterStays(t *testing.T) {
	b := openTab(t, newBusyHub(40, 400))
	b.open("/")
	const rows = "document.querySelectorAll('table.drivers tbody tr').length"
	if got := ask[int](b, rows); got != 40 {
		t.Fatalf("got %d rows", got)
	}
	b.typeInto("input[name=q]", "vsphere")
	b.until(rows + " === 1 && location.search === '?q=vsphere'")
	before := b.text("#asof")
	b.until(fmt.Sprintf("document.getElementById('asof').innerText !== %q", before))
	if got := ask[int](b, rows); got != 1 {
		t.Errorf("after a refresh there are %d rows", got)
	}
	if got := ask[string](b, "document.activeElement.name"); got != "q" {
		t.Errorf("the focus is on %q and not where one types", got)
	}
	ask[any](b, `document.querySelector('input[name=q]').value = 'attention'`)
	b.click("form button")
	b.until("location.search === '?q=attention' && " + rows + " > 1 && " + rows + " < 40")
}

func TestThePageIsCompleteWithScriptsOff(t *testing.T) {
	b := openTab(t, newBusyHub(120, 1200))
	b.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	b.open("/")
	b.typeInto("input[name=q]", "vsphere")
	b.click("form button")
	b.waitFor("tr.row-broken:only-child")
	if got := ask[string](b, "location.href"); !strings.HasSuffix(got, "/?q=vsphere") {
		t.Errorf("the form leads to %s", got)
	}
	b.click("table.drivers th a")
	b.waitFor("#failures")
	b.click("#open h2 a")
	b.waitFor("form input[name=driver]")
	b.open("/attachments")
	b.click("table.volumes th a")
	b.waitFor("#facts")
}

func TestHostileTextsStayTexts(t *testing.T) {
	h := newFakeHub()
	driver, attachment, overview := filled[Driver](), filled[Attachment](), filled[Overview]()
	makeHostile(&driver, &attachment, &overview)
	h.change(func() {
		h.drivers[driver.Name], h.attachments[attachment.Name], h.overview = driver, attachment, overview
	})
	b := openTab(t, h)
	for _, path := range hostilePaths(driver, attachment) {
		b.open(path)
		before := b.text("#asof")
		b.until(fmt.Sprintf("document.getElementById('asof').innerText !== %q", before)) // also what the script puts in
		if got := ask[string](b, "document.title"); strings.HasPrefix(got, "owned") {
			t.Errorf("%s: a script of a driver has run", path)
		}
		if got := ask[[]string](b, `[...document.querySelectorAll('main script, main img, main iframe, main object, main style, main [onload], main [onerror], main a[href^="javascript:" i], svg svg')].map((e) => e.outerHTML)`); len(got) > 0 {
			t.Errorf("%s: texts became elements: %q", path, got)
		}
		if !strings.Contains(b.text("body"), "<script>document.title='owned'</script>") {
			t.Errorf("%s does not show the text", path)
		}
	}
}

func TestALostConnectionIsShownWithItsTimeUntilItIsBack(t *testing.T) {
	h := newBusyHub(3, 3)
	b := openTab(t, h)
	b.open("/")
	b.expect("Failed to load resource")
	lost := regexp.MustCompile(`^Connection lost at \d\d:\d\d:\d\d UTC; reconnecting$`)
	stale := regexp.MustCompile(`^This page shows the state at \d\d:\d\d:\d\d UTC, \d+s ago\.$`)
	ask[any](b, `new MutationObserver(() => { window.read++; }).observe(document.getElementById('lost'), { childList: true, characterData: true, subtree: true })`)
	for range 2 {
		ask[any](b, "window.read = 0")
		h.change(func() { h.panics = true }) // the connection ends without an answer
		b.until("!document.getElementById('away').hidden")
		alert, age := b.text("#away [role=alert]"), b.text("#stale")
		if !lost.MatchString(alert) || !stale.MatchString(age) {
			t.Errorf("the page says %q and %q", alert, age)
		}
		for range 3 { // meanwhile it has tried again
			b.until(fmt.Sprintf("document.getElementById('stale').innerText !== %q", age))
			age = b.text("#stale")
		}
		if n := ask[int](b, "window.read"); n != 1 || b.text("#away [role=alert]") != alert {
			t.Errorf("the alert is read out %d times", n)
		}
		h.change(func() { h.panics = false })
		b.until("document.getElementById('away').hidden")
	}
}
