package status

import (
	"fmt"
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

func TestPagesFitWideAndNarrowWindows(t *testing.T) {
	h := newTroubledHub(time.Now())
	b := openTab(t, h)
	for name, path := range map[string]string{
		"overview": "/", "trouble": "/#trouble", "lost": "/drivers/" + troubled.lost, "hanging": "/drivers/" + troubled.hanging, "full": "/drivers/" + troubled.full,
		"paused": "/drivers/" + troubled.paused, "observed": "/drivers/" + troubled.observed, "left": "/drivers/" + troubled.left, "fine": "/drivers/" + troubled.fine,
		"attachments": "/attachments", "stuck": "/attachments/" + vaName(1000), "hangs": "/attachments/" + vaName(2000),
		"failing": "/attachments/" + vaName(4000), "attached": "/attachments/" + vaName(9000), "unserved": "/attachments/" + vaName(8000), "missing": "/drivers/none",
	} {
		if name == "missing" {
			b.expect("404")
		}
		b.open(path)
		for _, scheme := range []string{"light", "dark"} {
			b.look(scheme)
			for _, width := range []int64{390, 900, 1400} {
				b.size(width, 1000, width < 500)
				for _, wide := range ask[[]string](b, tooWide) {
					t.Errorf("%s in %s at %d: %s", name, scheme, width, wide)
				}
				for _, text := range ask[[]string](b, broken) {
					t.Errorf("%s in %s at %d: %s is broken in the middle", name, scheme, width, text)
				}
				b.picture(fmt.Sprintf("%s-%s-%d", name, scheme, width))
			}
		}
	}
}
