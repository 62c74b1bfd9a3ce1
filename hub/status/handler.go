package status

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

// mostScrapes is how many scrapes run at once.
const mostScrapes = 8

// newHandler returns the handler of all paths: metrics and probes for all, everything else on loopback addresses only.
func newHandler(o Options) http.Handler {
	mux := http.NewServeMux()
	l := newLimiter()
	api{hub: view{o.Source}, limiter: l, volumes: o.Volumes}.register(mux)
	(&pages{hub: view{o.Source}, metrics: o.Metrics, metricsPath: o.MetricsPath, limiter: l}).register(mux)
	if o.Profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		sendError(w, http.StatusNotFound, "there is nothing at this path")
	})
	all := http.NewServeMux()
	all.Handle(o.MetricsPath, promhttp.HandlerFor(o.Metrics.Gatherer(o.Source), promhttp.HandlerOpts{
		// One broken metric does not hide the others.
		ErrorHandling:       promhttp.ContinueOnError,
		ErrorLog:            scrapeLog{loglimit.New(10, time.Minute)},
		MaxRequestsInFlight: mostScrapes,
	}))
	all.HandleFunc("/livez", lastAnswer(o.Probes.probe("livez")))
	all.HandleFunc("/readyz", lastAnswer(o.Probes.probe("readyz")))
	all.HandleFunc("/healthz/leader-election", lastAnswer(leaderElection(o.LeaderCheck)))
	all.Handle("/", onLoopback(mux))
	return readOnly(checkHost(o.AllowedHosts, all))
}

// lastAnswer closes the connection after the answer: everybody may ask, and a kubelet does not use
// a connection again.
func lastAnswer(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		next(w, r)
	}
}

// CheckMetricsPath returns an error if Options.MetricsPath is no plain path, or if something else
// is served there.
func CheckMetricsPath(p string) error {
	taken := p == "/" || p == "/livez" || p == "/readyz" || p == "/healthz/leader-election" ||
		p == "/attachments" || slices.ContainsFunc([]string{"/api/", "/debug/", "/drivers/", "/attachments/", "/assets/"},
		func(taken string) bool { return strings.HasPrefix(p, taken) })
	switch {
	case !strings.HasPrefix(p, "/") || path.Clean(p) != p || strings.ContainsAny(p, "{}?#% \t\r\n"):
		return fmt.Errorf("the metrics path %q is not a plain path like %s", p, defaultMetricsPath)
	case taken:
		return fmt.Errorf("the metrics path %q is taken: something else is served there", p)
	}
	return nil
}

// readOnly rejects all methods but GET and HEAD, and sets headers by which browsers only show
// the answer.
func readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			sendError(w, http.StatusMethodNotAllowed, "only GET and HEAD are served: nothing can be changed here")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func sendText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // the client may have left
}

func sendJSON(w http.ResponseWriter, code int, value any) {
	body, err := json.Marshal(value)
	if err != nil { // a value of this package has no JSON form
		sendError(w, http.StatusInternalServerError, err.Error())
		return
	}
	sendBody(w, code, body)
}

// sendBody answers with JSON.
func sendBody(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the client may have left
}

// sendError answers with {"error": text}.
func sendError(w http.ResponseWriter, code int, text string) {
	sendJSON(w, code, map[string]string{"error": text})
}

// scrapeLog logs the errors of promhttp: one for each metric that it cannot send to a client that has left.
type scrapeLog struct{ limiter *loglimit.Limiter }

func (l scrapeLog) Println(v ...any) {
	l.limiter.Info(klog.Background(), "Cannot show all metrics", "problem", strings.TrimSpace(fmt.Sprintln(v...)))
}
