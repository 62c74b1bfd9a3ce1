// Package probes answers whether the process is ready and live.
package probes

import (
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

// Paths of the probes.
const (
	Live           = "/livez"  // a container that is not live for long is restarted
	Ready          = "/readyz" // caches and configuration are loaded
	LeaderElection = "/healthz/leader-election"
)

// Probes says whether the process is ready and live (its loops make progress). A broken driver changes neither: a
// restart would not repair it, and would stop the other drivers.
type Probes struct {
	mu     sync.Mutex
	checks []check // in the order of adding; guarded by mu
}

// check is one condition of a probe. run returns why it does not hold.
type check struct {
	path, name string
	run        func() error
}

// Add lets a probe pass only while run returns nil. Checks run at each request, on its goroutine, and must not wait
// for anything but short locks. The error is shown to anyone who asks.
func (p *Probes) Add(path, name string, run func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checks = append(p.checks, check{path, name, run})
}

// Err returns the error of the first check of a probe that does not hold, nil if all hold.
func (p *Probes) Err(path string) error {
	p.mu.Lock()
	checks := slices.Clone(p.checks)
	p.mu.Unlock()
	for _, c := range checks {
		if c.path == path {
			if err := c.run(); err != nil {
				return err
			}
		}
	}
	return nil
}

// ServeHTTP answers 200 "ok" if all checks of the probe hold, else 500. It lists the checks if one does not hold or if
// ?verbose asks for it, in the form of kube-apiserver's probes.
func (p *Probes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	checks := slices.Clone(p.checks)
	p.mu.Unlock()
	var lines strings.Builder
	code, result := http.StatusOK, "passed"
	for _, c := range checks {
		if c.path != r.URL.Path {
			continue
		}
		if err := c.run(); err != nil {
			code, result = http.StatusInternalServerError, "failed"
			// On one line: others could look like further checks.
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", c.name, strings.Join(strings.Fields(err.Error()), " "))
		} else {
			fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
		}
	}
	text := "ok"
	if code != http.StatusOK || r.URL.Query().Has("verbose") {
		text = fmt.Sprintf("%s%s check %s\n", lines.String(), path.Base(r.URL.Path), result)
	}
	w.Header().Set("Connection", "close") // everybody may ask, and a kubelet does not use a connection again
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text) // the client may have left
}
