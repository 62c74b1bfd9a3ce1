package status

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// tooWide lists what is wider than its place: the page, tables, and elements whose text runs out of the window. A
// text that is cut with an ellipsis has a title with all of it.
const tooWide = `(() => {
  const found = [], window_ = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > window_) found.push('the page is ' + document.documentElement.scrollWidth);
  for (const t of document.querySelectorAll('table')) {
    if (t.scrollWidth > t.parentElement.clientWidth) found.push('table ' + t.className + ' is ' + t.scrollWidth + ' in ' + t.parentElement.clientWidth);
  }
  for (const e of document.querySelectorAll('main *, header *, footer *')) {
    if (!e.checkVisibility() || e.closest('.unseen, .skip, thead, svg')) continue;
    const r = e.getBoundingClientRect();
    if (r.right > window_ + 1 || r.left < -1) found.push(e.tagName + '.' + e.className + ' ends at ' + Math.round(r.right) + ': ' + e.textContent.trim().slice(0, 40));
    const cut = getComputedStyle(e).textOverflow === 'ellipsis' && e.scrollWidth > e.clientWidth;
    if (cut && !e.title) found.push(e.tagName + '.' + e.className + ' is cut and has no title: ' + e.textContent.trim().slice(0, 40));
  }
  return found;
})()`

// broken lists the names that stand on several lines although they would fit into one.
const broken = `(() => {
  const found = [];
  const check = (name, rects, e) => {
    if (rects.length < 2 || Math.max(...rects.map((r) => r.top)) - Math.min(...rects.map((r) => r.top)) < 5) return;
    while (!['block', 'table-cell', 'list-item', 'flex'].includes(getComputedStyle(e).display)) e = e.parentElement;
    const style = getComputedStyle(e), room = e.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 30;
    if (rects.reduce((sum, r) => sum + r.width, 0) < room) found.push(name);
  };
  for (const w of document.querySelectorAll('main .w > .w:first-child')) {
    if (w.checkVisibility()) check(w.parentElement.textContent, [...w.parentElement.children].map((e) => e.getBoundingClientRect()), w.parentElement);
  }
  const texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  for (let n = texts.nextNode(); n; n = texts.nextNode()) {
    if (!n.parentElement.checkVisibility() || n.parentElement.closest('.unseen, thead, pre, .error, .name, .facts code')) continue;
    for (const m of n.data.matchAll(/\S*[-\/]\S*/g)) {
      const range = document.createRange();
      range.setStart(n, m.index);
      range.setEnd(n, m.index + m[0].length);
      check(m[0], [...range.getClientRects()], n.parentElement);
    }
  }
  return found;
})()`

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

func TestPagesFitAllWindowsAndAreReadableInLightAndDark(t *testing.T) {
	b := openTab(t, newHub(5, 5))
	b.expect("404")
	for name, path := range map[string]string{
		"overview": "/", "trouble": "/#trouble", "lost": "/drivers/" + troubled.lost, "hanging": "/drivers/" + troubled.hanging, "full": "/drivers/" + troubled.full,
		"paused": "/drivers/" + troubled.paused, "observed": "/drivers/" + troubled.observed, "left": "/drivers/" + troubled.left, "fine": "/drivers/" + troubled.fine,
		"attachments": "/attachments", "stuck": "/attachments/" + vaName(1000), "hangs": "/attachments/" + vaName(2000),
		"failing": "/attachments/" + vaName(4000), "attached": "/attachments/" + vaName(9000), "unserved": "/attachments/" + vaName(8000), "missing": "/drivers/none",
	} {
		b.open(path)
		for _, width := range []int64{390, 900, 1400} {
			b.size(width, 1000, width < 500)
			for _, wide := range ask[[]string](b, tooWide) {
				t.Errorf("%s at %d: %s", name, width, wide)
			}
			for _, text := range ask[[]string](b, broken) {
				t.Errorf("%s at %d: %s is broken in the middle", name, width, text)
			}
			b.picture(fmt.Sprintf("%s-%d", name, width))
		}
		for _, scheme := range []string{"dark", "light"} {
			b.look(scheme)
			for _, poor := range ask[[]string](b, poorContrast) {
				t.Errorf("%s in %s: %s", name, scheme, poor)
			}
		}
	}
}

// names are those of the drivers that are listed.
const names = "[...document.querySelectorAll('table.drivers tbody th a')].map((a) => a.innerText)"

// The picture in OPERATE.md: `make pictures` takes it.
func TestABrokenDriverAmongManyIsSeenFirst(t *testing.T) {
	b := openTab(t, newHub(8, 4000, troubled.lost, troubled.full, troubled.standby))
	b.size(1240, 1108, false)
	for _, scheme := range []string{"light", "dark"} {
		b.look(scheme)
		b.open("/")
		if got := b.text("h1"); !strings.Contains(got, " 1 driver broken;") {
			t.Errorf("the headline is %q", got)
		}
		if got := ask[[]string](b, names)[:2]; !slices.Equal(got, []string{troubled.lost, troubled.full}) {
			t.Errorf("the first rows are %q", got)
		}
		b.picture("status-" + scheme)
	}
}

func TestADriverIsFoundAmongManyAndARefreshKeepsWhatOneDoes(t *testing.T) {
	const drivers = 150
	b := openTab(t, newHub(drivers, 300, troubled.lost, troubled.full))
	b.size(1440, 600, false)
	b.open("/")
	if got := len(ask[[]string](b, names)); got != drivers+2 {
		t.Fatalf("%d drivers are listed", got)
	}
	wanted := wellName(112)
	ask[any](b, `
		document.querySelector('a[href="/drivers/`+wanted+`"]').focus();
		document.querySelector('input[name=q]').value = 'half typed';
		window.scrollTo(0, 700)`)
	b.refreshed()
	for what, expression := range map[string]string{
		"scroll":   "window.scrollY === 700",
		"focus":    fmt.Sprintf("document.activeElement.getAttribute('href') === %q", "/drivers/"+wanted),
		"the form": "document.querySelector('input[name=q]').value === 'half typed'",
	} {
		if !ask[bool](b, expression) {
			t.Errorf("the refresh lost %s", what)
		}
	}
	ask[any](b, "document.querySelector('input[name=q]').value = ''")
	b.typeInto("input[name=q]", wanted)
	b.until(fmt.Sprintf("(%s).length === 1 && location.search === '?q=%s'", names, wanted))
	b.refreshed()
	if got := ask[[]string](b, names); !slices.Equal(got, []string{wanted}) {
		t.Errorf("after a refresh the page lists %q, want %s", got, wanted)
	}
	if got := ask[string](b, "document.activeElement.name"); got != "q" {
		t.Errorf("the focus is on %q and not where one types", got)
	}
	ask[any](b, `document.querySelector('input[name=q]').value = 'attention'`)
	b.click("form button")
	b.until(fmt.Sprintf("location.search === '?q=attention' && (%s).join() === %q", names, troubled.full))
}

func TestAFailureIsShownWithoutALoadOfThePageAndWhatIsOpenStaysOpen(t *testing.T) {
	h := newHub(30, 300, troubled.lost, troubled.left)
	b := openTab(t, h)
	b.open("/drivers/" + troubled.left)
	ask[any](b, "document.querySelector('details').open = true")
	b.refreshed()
	if !ask[bool](b, "document.querySelector('details').open") {
		t.Error("the refresh closed what was open")
	}
	b.open("/")
	ask[any](b, "window.loadedOnce = true")
	name := wellName(18)
	h.setDriver(name, func(d *Driver) { d.State, d.Up, d.Reason, d.Since = "Lost", false, "connection refused", time.Now() })
	b.until(fmt.Sprintf("document.querySelector('tr.row-broken a[href=%q]') !== null", "/drivers/"+name))
	if !ask[bool](b, "window.loadedOnce === true") {
		t.Error("the page was loaded as a whole")
	}
	if heading, title := b.text("h1"), ask[string](b, "document.title"); !strings.Contains(heading, "2 drivers broken") || !strings.HasPrefix(title, "2 drivers broken") {
		t.Errorf("the headline is %q, the title %q", heading, title)
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

func TestThePageIsCompleteWithScriptsOff(t *testing.T) {
	b := openTab(t, newHub(20, 200, troubled.lost))
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
	h, paths := newHostileHub(hostile)
	b := openTab(t, h)
	for _, path := range paths {
		b.open(path)
		if path == "/" {
			b.refreshed() // also what the script puts in
		}
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
	h := newHub(3, 3, troubled.fine)
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
		for range 2 { // meanwhile it has tried again
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
