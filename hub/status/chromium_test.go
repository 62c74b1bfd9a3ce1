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
	"sync"
	"testing"
)

// chromium is a headless Chromium, the same for all tests. It speaks the DevTools protocol through
// pipes: https://chromedevtools.github.io/devtools-protocol/.
type chromium struct {
	commands io.WriteCloser
	dir      string // with its profile and what it writes
	ended    chan struct{}

	mu       sync.Mutex
	lastID   int
	answers  map[int]chan<- message // by ID of the command
	tabs     map[string]*tab        // by session
	hasEnded bool
}

// message is an answer or an event of the browser.
type message struct {
	ID        int             `json:"id"`
	SessionID string          `json:"sessionId"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// browser is that of all tests, nil before the first one that needs it.
var browser *chromium

func TestMain(m *testing.M) {
	code := m.Run()
	if browser != nil {
		browser.stop()
	}
	os.Exit(code)
}

// startChromium starts a browser with a profile of its own.
func startChromium(path string) (*chromium, error) {
	dir, err := os.MkdirTemp("", "chromium-")
	if err != nil {
		return nil, err
	}
	commandsOut, commandsIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	messagesOut, messagesIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	process := exec.Command(path, "--headless", "--remote-debugging-pipe", "--user-data-dir="+filepath.Join(dir, "profile"), "--no-sandbox",
		"--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run", "--allow-pre-commit-input", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-breakpad", "--hide-scrollbars", "--mute-audio", "about:blank")
	process.ExtraFiles = []*os.File{commandsOut, messagesIn} // descriptors 3 and 4
	stderr, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		return nil, err
	}
	process.Stderr = stderr
	if err := process.Start(); err != nil {
		return nil, err
	}
	stderr.Close()
	commandsOut.Close()
	messagesIn.Close()
	c := &chromium{commands: commandsIn, dir: dir, ended: make(chan struct{}), answers: map[int]chan<- message{}, tabs: map[string]*tab{}}
	go func() {
		defer close(c.ended)
		c.read(messagesOut)
		_ = process.Wait()
		messagesOut.Close()
	}()
	return c, nil
}

// stop ends the browser.
func (c *chromium) stop() {
	c.commands.Close()
	<-c.ended
	os.RemoveAll(c.dir)
}

var errEnded = errors.New("it has ended")

// browserStarts is how often a browser is started that ends before it has a tab, as Chromium does now and then on a busy machine.
const browserStarts = 3

// openIn opens a tab in the browser of all tests, and starts it if it does not run.
func (b *tab) openIn(path string) {
	b.t.Helper()
	for start := 1; ; start++ {
		var err error
		if browser == nil {
			if browser, err = startChromium(path); err != nil {
				b.t.Fatal(err)
			}
		}
		b.chromium = browser
		if err = b.attach(); err == nil {
			return
		}
		wrote, _ := os.ReadFile(filepath.Join(browser.dir, "stderr"))
		b.t.Logf("start %d of the browser: %v; it wrote: %s", start, err, wrote)
		if start == browserStarts || !errors.Is(err, errEnded) {
			b.t.FailNow()
		}
		browser.stop()
		browser = nil
	}
}

// attach makes the tab.
func (b *tab) attach() error {
	var attached struct{ SessionID string }
	if err := b.call(b.ctx, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &b.target); err != nil {
		return err
	}
	if err := b.call(b.ctx, "", "Target.attachToTarget", map[string]any{"targetId": b.target.TargetID, "flatten": true}, &attached); err != nil {
		return err
	}
	b.session = attached.SessionID
	b.mu.Lock()
	b.tabs[b.session] = b
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		if err := b.call(b.ctx, b.session, domain+".enable", nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// call sends a command, for a tab if it has a session, and waits for its result, which may be nil.
func (c *chromium) call(ctx context.Context, session, method string, params map[string]any, result any) error {
	answer := make(chan message, 1)
	c.mu.Lock()
	c.lastID++
	command := map[string]any{"id": c.lastID, "method": method}
	if params != nil {
		command["params"] = params
	}
	if session != "" {
		command["sessionId"] = session
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
		case c.tabs[m.SessionID] == nil:
		case m.Method == "Page.loadEventFired":
			select {
			case c.tabs[m.SessionID].loaded <- struct{}{}:
			default:
			}
		case slices.Contains([]string{"Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"}, m.Method):
			c.tabs[m.SessionID].console = append(c.tabs[m.SessionID].console, string(m.Params))
		}
		c.mu.Unlock()
	}
}
