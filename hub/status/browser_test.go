package status

import (
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// browserPatience bounds a test in the browser: a machine may be slow.
const browserPatience = 2 * time.Minute

// tab is one page in a real browser. What the browser complains about fails the test.
type tab struct {
	ctx context.Context
	t   *testing.T
	url string // of the server

	complaints []string // of the browser; to be read when it has ended
	expected   []string // parts of those that the test is about
}

// openTab starts a headless Chromium with a fresh profile. Where there is none the test
// is skipped, but in CI, which has to install it.
func openTab(t *testing.T, h *fakeHub) *tab {
	t.Helper()
	path := chromium(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(filepath.Join(t.TempDir(), "profile")),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.NoFirstRun,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	url := startServer(t, h) // ends after the browser, which keeps connections
	ctx, cancel := context.WithTimeout(context.Background(), browserPatience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	b := &tab{ctx: ctx, t: t, url: url}
	messages := chromedp.Console(ctx)
	var listening sync.WaitGroup
	listening.Go(func() { b.listen(messages) })
	t.Cleanup(func() {
		cancel()
		listening.Wait()
		for _, c := range b.complaints {
			if !slices.ContainsFunc(b.expected, func(part string) bool { return strings.Contains(c, part) }) {
				t.Errorf("the browser complains: %s", c)
			}
		}
	})
	return b
}

// chromium returns where the browser is.
func chromium(t *testing.T) string {
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

// listen takes in what a developer would see in the browser's console: errors of the
// script, violations of the page's policy, files that are missing.
func (b *tab) listen(messages iter.Seq2[chromedp.ConsoleMessage, error]) {
	for m, err := range messages {
		if err != nil {
			return
		}
		b.complaints = append(b.complaints, string(m.Type)+" "+m.Text+" "+m.URL)
	}
}

// expect lets the browser complain about something.
func (b *tab) expect(part string) { b.expected = append(b.expected, part) }

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// call sends a command of the browser's protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatal(err)
	}
}

// open goes to a path and waits until it is there.
func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.url+path), chromedp.WaitReady("footer"))
}

// size makes the window so wide.
func (b *tab) size(width, height int64, mobile bool) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: mobile})
}

// look sets light or dark.
func (b *tab) look(scheme string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// ask evaluates an expression in the page.
func ask[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("evaluate %s: %v", expression, err)
	}
	return value
}

// until waits for an expression to be true. It asks from outside: the page's policy
// forbids to make functions of texts in it.
func (b *tab) until(expression string) {
	b.t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !ask[bool](b, expression) {
		select {
		case <-again.C:
		case <-b.ctx.Done():
			b.t.Fatalf("waited for %s in vain", expression)
		}
	}
}

// text is what is to be read in a part of the page.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return ask[string](b, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// pictures is where pictures of the pages go; empty if nobody wants any.
func (b *tab) pictures() string { return os.Getenv("STATUS_SCREENSHOTS") }

// picture saves what the page looks like, if somebody wants to look.
func (b *tab) picture(name string) {
	b.t.Helper()
	dir := b.pictures()
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
