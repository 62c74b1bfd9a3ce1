package status

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/httpguard"
	"github.com/csi-attach-hub/csi-attach-hub/internal/probes"
)

// startServer serves a fakeHub on a loopback port until the test ends, and returns its URL.
func startServer(t *testing.T, h *fakeHub, change ...func(*Options)) string {
	t.Helper()
	o := Options{Endpoint: "127.0.0.1:0", Source: h, Metrics: h.metrics, Probes: h.health}
	for _, f := range change {
		f(&o)
	}
	s, err := Listen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	return "http://" + s.Addr().String()
}

// toLoopback returns the context of a request on a connection to a loopback address.
func toLoopback(ctx context.Context) context.Context {
	return context.WithValue(ctx, http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})
}

// client has connections that end with each request, so that no server waits for them.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// get asks for a URL and returns the status, the headers and the body.
func get(t *testing.T, url string) (int, http.Header, string) {
	t.Helper()
	return request(t, http.MethodGet, url)
}

func request(t *testing.T, method, url string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(body)
}

func TestListenFailsWhenThePortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	h := newFakeHub()
	if _, err := Listen(t.Context(), Options{Endpoint: taken.Addr().String(), Source: h, Metrics: h.metrics, Probes: h.health}); err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("got %v, want an error that names the address", err)
	}
}

func TestMetricsPathIsPlainAndFree(t *testing.T) {
	for path, want := range map[string]string{
		"metrics": "plain", "/metrics/": "plain", "/{x}": "plain", "/a b": "plain", "/": "plain", "": "plain", "//metrics": "plain", "/a?b": "plain",
		"/livez": "taken", "/healthz/leader-election": "taken", "/api/v1/drivers": "taken", "/drivers/a": "taken", "/attachments": "taken", "/debug/pprof/heap": "taken",
		"/metrics": "", "/my/metrics": "", "/attachments.prom": "",
	} {
		switch err := CheckMetricsPath(path); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
}

func TestOnlyRequestsThatReadAreServed(t *testing.T) {
	h := newFakeHub()
	h.engage("a.example.com")
	url := startServer(t, h)
	for _, path := range []string{"/", "/drivers/a.example.com", "/assets/page.js", "/api/v1/drivers", "/metrics"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "SURPRISE"} {
			if code, header, body := request(t, method, url+path); code != http.StatusMethodNotAllowed || header.Get("Allow") != "GET, HEAD" || !strings.HasPrefix(body, `{"error":`) {
				t.Errorf("%s %s: got %d, Allow %q, %s", method, path, code, header.Get("Allow"), body)
			}
		}
		if code, _, body := request(t, http.MethodHead, url+path); code != http.StatusOK || body != "" {
			t.Errorf("HEAD %s: got %d %q", path, code, body)
		}
	}
}

func TestEveryAnswerTellsBrowsersToDoNothingWithItAndAnErrorIsJSON(t *testing.T) {
	url := startServer(t, newFakeHub())
	for _, path := range []string{"/", "/attachments", "/drivers/none", "/assets/page.js", "/metrics", "/livez", "/readyz", "/healthz/leader-election", "/api/v1/overview", "/api/v1/drivers",
		"/api/v1/drivers/none", "/api/v1/attachments", "/nothing"} {
		_, header, _ := get(t, url+path)
		for key, want := range map[string]string{
			"Cache-Control":                "no-store",
			"Content-Security-Policy":      httpguard.Policy,
			"Cross-Origin-Resource-Policy": "same-origin",
			"X-Content-Type-Options":       "nosniff",
		} {
			if got := header.Get(key); got != want {
				t.Errorf("%s: %s is %q, want %q", path, key, got, want)
			}
		}
		if header.Get("Content-Type") == "" {
			t.Errorf("%s has no content type", path)
		}
	}
	for _, path := range []string{"/nothing", "/api/v1/nothing", "/livez/more", "/metrics/more"} {
		code, header, body := get(t, url+path)
		if code != http.StatusNotFound || header.Get("Content-Type") != "application/json" || !strings.HasPrefix(body, `{"error":`) {
			t.Errorf("%s: got %d %s %s", path, code, header.Get("Content-Type"), body)
		}
	}
}

func TestThePageNamesThePathOfTheMetrics(t *testing.T) {
	url := startServer(t, newFakeHub(), func(o *Options) { o.MetricsPath = "/other" })
	if code, _, body := get(t, url+"/"); code != http.StatusOK || !strings.Contains(body, `href="/other"`) {
		t.Errorf("got %d %s", code, body)
	}
	if code, _, body := get(t, url+"/other"); code != http.StatusOK || !strings.Contains(body, "attach_hub_config_hash") {
		t.Errorf("the metrics: got %d %s", code, body)
	}
	if code, _, _ := get(t, url+"/metrics"); code != http.StatusNotFound {
		t.Errorf("the default path: got %d", code)
	}
}

func TestProfilesAreServedOnRequestOnly(t *testing.T) {
	for _, profiling := range []bool{false, true} {
		url := startServer(t, newFakeHub(), func(o *Options) { o.Profiling = profiling })
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
			if code, _, _ := get(t, url+path); (code == http.StatusOK) != profiling {
				t.Errorf("%s with Profiling %v: got %d", path, profiling, code)
			}
		}
	}
}

func TestHeadersThatNeverEndAreCutOff(t *testing.T) {
	url := startServer(t, newFakeHub())
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: hub\r\nX-Long: %s\r\n\r\n", strings.Repeat("x", 64<<10))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %s", response.Status)
	}
}

// slowHub holds up whoever asks for its VolumeAttachments.
type slowHub struct {
	*fakeHub
	asked, answer chan struct{}
}

func (h slowHub) Attachments(AttachmentFilter) []Attachment {
	close(h.asked)
	<-h.answer
	return []Attachment{{Name: "late"}}
}

func TestARequestThatRunsWhenTheServerEndsIsAnswered(t *testing.T) {
	h := slowHub{newFakeHub(), make(chan struct{}), make(chan struct{})}
	s, err := Listen(t.Context(), Options{Endpoint: "127.0.0.1:0", Source: h, Metrics: h.metrics, Probes: h.health})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	answered := make(chan string, 1)
	go func() {
		response, err := client.Get("http://" + s.Addr().String() + "/api/v1/attachments")
		if err != nil {
			answered <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answered <- string(body)
	}()
	<-h.asked
	cancel()
	for { // until it takes no more
		conn, err := net.DialTimeout("tcp", s.Addr().String(), time.Second)
		if err != nil {
			break
		}
		conn.Close()
	}
	close(h.answer)
	if got := <-answered; !strings.Contains(got, `"late"`) {
		t.Errorf("got %s", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
}

// Before the caches are filled, a page would show no driver, and every volume as one that nobody serves.
func TestHubThatHasNotStartedShowsNoDriversAndVolumes(t *testing.T) {
	h := newFakeHub()
	var filled atomic.Bool
	h.health.Add(probes.Ready, "caches", func() error {
		if !filled.Load() {
			return errors.New("the caches are not filled yet")
		}
		return nil
	})
	address := strings.TrimPrefix(startServer(t, h, func(o *Options) { o.Profiling = true }), "http://")
	for _, started := range []bool{false, true} {
		filled.Store(started)
		for path, want := range map[string]int{
			"/": http.StatusServiceUnavailable, "/api/v1/overview": http.StatusServiceUnavailable, "/api/v1/attachments": http.StatusServiceUnavailable,
			"/metrics": http.StatusOK, "/livez": http.StatusOK, "/debug/pprof/": http.StatusOK,
		} {
			code, body := send(t, address, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
			if says := strings.Contains(body, "the hub has not started: the caches are not filled yet"); started && code != http.StatusOK || !started && (code != want || says != (want != http.StatusOK)) {
				t.Errorf("started %t: %s: %d %s", started, path, code, body)
			}
		}
	}
}

func TestConnectionsEndWithTheAnswerOfAProbe(t *testing.T) {
	url := startServer(t, newFakeHub())
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("got %s, close %v, %v", response.Status, response.Close, err)
	}
	if _, err := reader.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection stays: %v", err)
	}
}

func TestProbesSayWhichCheckFails(t *testing.T) {
	h := newHub(0, 0, troubled.lost) // a broken driver leaves the process ready and live
	url := startServer(t, h)
	for _, path := range []string{"/livez", "/readyz"} {
		if code, _, body := get(t, url+path); code != http.StatusOK || body != "ok" {
			t.Errorf("%s without checks: got %d %q", path, code, body)
		}
	}
	var caches, workers, lost error
	h.health.Add(probes.Ready, "config", func() error { return nil })
	h.health.Add(probes.Ready, "caches", func() error { return caches })
	h.health.Add(probes.Live, "workers", func() error { return workers })
	h.health.Add(probes.LeaderElection, "leases", func() error { return lost })
	for _, tc := range []struct {
		caches, workers, lost error
		path                  string
		code                  int
		body                  string
	}{
		{nil, nil, nil, "/readyz", 200, "ok"},
		{nil, nil, nil, "/readyz?verbose", 200, "[+]config ok\n[+]caches ok\nreadyz check passed\n"},
		{nil, nil, nil, "/livez?verbose", 200, "[+]workers ok\nlivez check passed\n"},
		{nil, nil, nil, "/healthz/leader-election", 200, "ok"},
		{errors.New("not\nfilled\n[+]lie ok"), nil, nil, "/readyz", 500, "[+]config ok\n[-]caches failed: not filled [+]lie ok\nreadyz check failed\n"},
		{errors.New("not filled"), nil, nil, "/livez", 200, "ok"},
		{nil, errors.New("all wait"), nil, "/livez", 500, "[-]workers failed: all wait\nlivez check failed\n"},
		{nil, errors.New("all wait"), nil, "/readyz", 200, "ok"},
		{nil, nil, errors.New("not renewed"), "/healthz/leader-election", 500, "[-]leases failed: not renewed\nleader-election check failed\n"},
	} {
		caches, workers, lost = tc.caches, tc.workers, tc.lost
		code, header, body := get(t, url+tc.path)
		if code != tc.code || body != tc.body || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: got %d %q, want %d %q", tc.path, code, body, tc.code, tc.body)
		}
	}
}
