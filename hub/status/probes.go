package status

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Probes says whether the process is ready (caches and configuration are loaded) and live (its loops
// make progress). A broken driver changes neither: a restart would not repair it, and would stop the
// other drivers.
type Probes struct {
	mu     sync.Mutex
	checks map[string][]check // by probe, in the order of adding; guarded by mu
}

// check is one condition. run returns why it does not hold.
type check struct {
	name string
	run  func() error
}

// NewProbes returns a Health without checks, which is live and ready. A nil Health takes
// checks and forgets them.
func NewProbes() *Probes { return &Probes{checks: map[string][]check{}} }

// AddReady makes the process ready only while run returns nil. Checks run at each
// request, on its goroutine, and must not wait for anything but short locks. The error
// is shown to whoever asks.
func (h *Probes) AddReady(name string, run func() error) { h.add("readyz", check{name, run}) }

// AddLive makes the process live only while run returns nil. The kubelet restarts a container
// that is not live for long. The check obeys the rules of AddReady.
func (h *Probes) AddLive(name string, run func() error) { h.add("livez", check{name, run}) }

func (h *Probes) add(probe string, c check) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[probe] = append(h.checks[probe], c)
}

// probe answers 200 "ok" if all checks of the probe hold, else 500. It lists the checks if one
// does not hold or if ?verbose asks for it, in the form of kube-apiserver's probes.
func (h *Probes) probe(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		checks := slices.Clone(h.checks[name])
		h.mu.Unlock()
		var lines strings.Builder
		ok := true
		for _, c := range checks {
			if err := c.run(); err != nil {
				ok = false
				fmt.Fprintf(&lines, "[-]%s failed: %s\n", c.name, oneLine(err.Error()))
			} else {
				fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
			}
		}
		switch {
		case !ok:
			sendText(w, http.StatusInternalServerError, lines.String()+name+" check failed\n")
		case r.URL.Query().Has("verbose"):
			sendText(w, http.StatusOK, lines.String()+name+" check passed\n")
		default:
			sendText(w, http.StatusOK, "ok")
		}
	}
}

// oneLine joins the lines of a text, which could look like further checks.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// leaderElection answers as csi-attacher does.
func leaderElection(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			sendText(w, http.StatusInternalServerError, err.Error()+"\n")
			return
		}
		sendText(w, http.StatusOK, "ok")
	}
}
