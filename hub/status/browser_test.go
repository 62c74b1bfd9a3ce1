package status

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// browserTimeout ends a test whose browser hangs. On a very busy machine a test of five seconds has taken more than two minutes.
const browserTimeout = 4 * time.Minute

// tab is one page in a real browser. What the browser complains about fails the test.
type tab struct {
	*chromium
	ctx     context.Context
	t       *testing.T
	url     string // of the server
	session string
	target  struct{ TargetID string }
	loaded  chan struct{} // has an element after a page was loaded

	console  []string // events: errors of scripts, violations of the page's policy, missing files; guarded by mu
	expected []string // parts of the complaints that the test is about
}

// openTab opens a tab. Where there is no browser the test is skipped, but in CI, which has to install it.
func openTab(t *testing.T, h *fakeHub) *tab {
	t.Helper()
	path := chromiumPath(t)
	ctx, cancel := context.WithTimeout(context.Background(), browserTimeout)
	t.Cleanup(cancel)
	b := &tab{ctx: ctx, t: t, url: startServer(t, h), loaded: make(chan struct{}, 1)} // the server ends after the tab, which keeps connections
	b.openIn(path)
	t.Cleanup(func() {
		_ = b.call(ctx, "", "Target.closeTarget", map[string]any{"targetId": b.target.TargetID}, nil)
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.tabs, b.session)
		for _, c := range b.console {
			if !slices.ContainsFunc(b.expected, func(part string) bool { return strings.Contains(c, part) }) {
				t.Errorf("the browser complains: %s", c)
			}
		}
	})
	return b
}

// chromiumPath returns where the browser is.
func chromiumPath(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "there is no Chromium to look at the page with: install it with `make browser`"
	if os.Getenv("CI") != "" || os.Getenv("CHROMIUM_REQUIRED") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// expect lets the browser complain about something.
func (b *tab) expect(part string) { b.expected = append(b.expected, part) }

// do sends a command of the browser's protocol. result may be nil.
func (b *tab) do(method string, params map[string]any, result any) {
	b.t.Helper()
	if err := b.call(b.ctx, b.session, method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

// open goes to a path and waits until it is there.
func (b *tab) open(path string) {
	b.t.Helper()
	select {
	case <-b.loaded: // an earlier page
	default:
	}
	var page struct{ LoaderID, ErrorText string }
	b.do("Page.navigate", map[string]any{"url": b.url + path}, &page)
	if page.ErrorText != "" {
		b.t.Fatalf("open %s: %s", path, page.ErrorText)
	}
	if page.LoaderID != "" { // else only the fragment differs
		select {
		case <-b.loaded:
		case <-b.ctx.Done():
			b.t.Fatalf("%s was not loaded in time", path)
		}
	}
	b.waitFor("footer")
}

// waitFor waits until the page has an element, and its styles: without them it stands elsewhere, and a click misses it.
func (b *tab) waitFor(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.readyState === 'complete' && document.querySelector(%q) !== null", selector))
}

// click presses and releases the mouse in the middle of an element.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.waitFor(selector)
	at := ask[[]float64](b, fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.scrollIntoView({block: 'center', behavior: 'instant'});
		const r = e.getClientRects()[0]; return [r.x + r.width / 2, r.y + r.height / 2]; })()`, selector))
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		b.do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1}, nil)
	}
}

// typeInto types a text into a field, key after key.
func (b *tab) typeInto(selector, text string) {
	b.t.Helper()
	b.waitFor(selector)
	ask[any](b, fmt.Sprintf("document.querySelector(%q).focus()", selector))
	for _, key := range text {
		b.do("Input.dispatchKeyEvent", map[string]any{"type": "char", "text": string(key)}, nil)
	}
}

// size makes the window so wide.
func (b *tab) size(width, height int64, mobile bool) {
	b.t.Helper()
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}, nil)
}

// look sets light or dark.
func (b *tab) look(scheme string) {
	b.t.Helper()
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// ask evaluates an expression in the page.
func ask[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := evaluate[T](b, expression)
	if err != nil {
		b.t.Fatalf("evaluate %s: %v", expression, err)
	}
	return value
}

func evaluate[T any](b *tab, expression string) (T, error) {
	var answer struct {
		Result           struct{ Value T }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	err := b.call(b.ctx, b.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &answer)
	if err == nil && answer.ExceptionDetails != nil {
		err = errors.New(answer.ExceptionDetails.Exception.Description)
	}
	return answer.Result.Value, err
}

// until waits for an expression to be true. It asks from outside: the page's policy
// forbids to make functions of texts in it. A page that is being left gives an error.
func (b *tab) until(expression string) {
	b.t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		holds, err := evaluate[bool](b, expression)
		if holds {
			return
		}
		select {
		case <-again.C:
		case <-b.ctx.Done():
			b.t.Fatalf("waited for %s in vain: %v", expression, err)
		}
	}
}

// refreshed waits until the script has replaced the parts of the page.
func (b *tab) refreshed() {
	b.t.Helper()
	b.until(fmt.Sprintf("document.getElementById('asof').innerText !== %q", b.text("#asof")))
}

// text is what is to be read in a part of the page.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return ask[string](b, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// picture saves what the page looks like, if somebody wants to look.
func (b *tab) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("STATUS_SCREENSHOTS")
	if dir == "" {
		return
	}
	var screenshot struct{ Data []byte }
	b.do("Page.captureScreenshot", nil, &screenshot)
	if err := os.WriteFile(filepath.Join(dir, name+".png"), screenshot.Data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
