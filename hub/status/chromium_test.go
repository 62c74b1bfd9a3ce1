package status

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// chromium is a headless Chromium with one tab. It speaks the DevTools protocol through
// pipes: https://chromedevtools.github.io/devtools-protocol/.
type chromium struct {
	commands io.Writer
	session  string        // of the tab
	loaded   chan struct{} // has an element after a page was loaded

	mu       sync.Mutex
	lastID   int
	answers  map[int]chan<- message // by ID of the command
	console  []string               // events: errors of scripts, violations of the page's policy, missing files
	hasEnded bool

	stderr string // path of what it writes there
}

// message is an answer or an event of the browser.
type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// startChromium starts the browser with a profile of its own. It ends with ctx, or when the
// function that is returned is called, which blocks until it has ended.
func startChromium(ctx context.Context, t *testing.T, path string) (*chromium, func()) {
	t.Helper()
	commandsOut, commandsIn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	messagesOut, messagesIn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	browser := exec.CommandContext(ctx, path, "--headless", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "--no-sandbox",
		"--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-breakpad", "--hide-scrollbars", "--mute-audio", "about:blank")
	browser.ExtraFiles = []*os.File{commandsOut, messagesIn} // descriptors 3 and 4
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	browser.Stderr = stderr
	if err := browser.Start(); err != nil {
		t.Fatal(err)
	}
	stderr.Close()
	commandsOut.Close()
	messagesIn.Close()
	c := &chromium{commands: commandsIn, loaded: make(chan struct{}, 1), answers: map[int]chan<- message{}, stderr: stderr.Name()}
	var reading sync.WaitGroup
	reading.Go(func() { c.read(messagesOut) })
	return c, func() {
		_ = c.call(ctx, "Browser.close", nil, nil)
		reading.Wait()
		_ = browser.Wait()
		commandsIn.Close()
		messagesOut.Close()
	}
}

var errEnded = errors.New("it has ended")

// browserStarts is how often a browser is started that ends before it has a tab, as Chromium does now and then on a busy machine.
const browserStarts = 3

// startWithTab is startChromium, and opens the tab.
func startWithTab(ctx context.Context, t *testing.T, path string) (*chromium, func()) {
	t.Helper()
	for start := 1; ; start++ {
		c, stop := startChromium(ctx, t, path)
		err := c.openTab(ctx)
		if err == nil {
			return c, stop
		}
		stop()
		wrote, _ := os.ReadFile(c.stderr)
		t.Logf("start %d of the browser: %v; it wrote: %s", start, err, wrote)
		if start == browserStarts || !errors.Is(err, errEnded) {
			t.FailNow()
		}
	}
}

// openTab opens the tab that all further commands are for.
func (c *chromium) openTab(ctx context.Context) error {
	var target struct{ TargetID string }
	if err := c.call(ctx, "Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return err
	}
	var attached struct{ SessionID string }
	if err := c.call(ctx, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached); err != nil {
		return err
	}
	c.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		if err := c.call(ctx, domain+".enable", nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// call sends a command and waits for its result, which may be nil.
func (c *chromium) call(ctx context.Context, method string, params map[string]any, result any) error {
	answer := make(chan message, 1)
	c.mu.Lock()
	c.lastID++
	command := map[string]any{"id": c.lastID, "method": method}
	if params != nil {
		command["params"] = params
	}
	if c.session != "" && !strings.HasPrefix(method, "Browser.") {
		command["sessionId"] = c.session
	}
	text, err := json.Marshal(command)
	if err == nil && c.hasEnded {
		err = errEnded
	}
	if err == nil {
		c.answers[c.lastID] = answer
		if _, writing := c.commands.Write(append(text, 0)); writing != nil {
			err = errEnded
		}
	}
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("send %s to the browser: %w", method, err)
	}
	select {
	case m, open := <-answer:
		switch {
		case !open:
			return fmt.Errorf("send %s to the browser: %w", method, errEnded)
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
}

// read takes messages in until the browser ends.
func (c *chromium) read(messages io.Reader) {
	for in := bufio.NewReader(messages); ; {
		text, err := in.ReadBytes(0)
		var m message
		if err == nil {
			err = json.Unmarshal(text[:len(text)-1], &m)
		}
		c.mu.Lock()
		switch {
		case err != nil:
			c.hasEnded = true
			for _, answer := range c.answers {
				close(answer)
			}
			c.mu.Unlock()
			return
		case m.ID != 0:
			c.answers[m.ID] <- m
			delete(c.answers, m.ID)
		case m.Method == "Page.loadEventFired":
			select {
			case c.loaded <- struct{}{}:
			default:
			}
		case slices.Contains([]string{"Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"}, m.Method):
			c.console = append(c.console, string(m.Params))
		}
		c.mu.Unlock()
	}
}
