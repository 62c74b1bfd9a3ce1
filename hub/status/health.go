package status

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Health says whether the process is ready: it knows what it needs to know; and
// whether it is live: what should move moves. A driver that is broken changes neither:
// no restart would mend it, and the other drivers go on.
type Health struct {
	mu        sync.Mutex
	liveness  []check // in the order of adding; guarded by mu
	readiness []check // likewise
}

// check is one condition. It returns why it does not hold.
type check struct {
	name string
	run  func() error
}

// NewHealth returns a Health without checks, which is live and ready. A nil Health takes
// checks and forgets them.
func NewHealth() *Health { return &Health{} }

// AddReady makes the process ready only while check returns nil. Checks run at each
// request, on its goroutine, and must not wait for anything but short locks. The error
// is shown to whoever asks.
func (h *Health) AddReady(name string, run func() error) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readiness = append(h.readiness, check{name, run})
}

// AddLive makes the process live only while check returns nil. When it does not for
// long, the process is killed and started anew. As to the check, see AddReady.
func (h *Health) AddLive(name string, run func() error) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.liveness = append(h.liveness, check{name, run})
}

func (h *Health) live() []check {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.liveness)
}

func (h *Health) ready() []check {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.readiness)
}

// probe answers 200 "ok" if all checks hold, else 500. It lists the checks if one does
// not hold or if ?verbose asks for it, in the form of kube-apiserver's probes.
func probe(name string, checks func() []check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var lines strings.Builder
		ok := true
		for _, c := range checks() {
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

// oneLine keeps a text from looking like further checks.
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
