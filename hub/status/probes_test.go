package status

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/probes"
)

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
