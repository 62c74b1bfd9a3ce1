package status

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/probes"
)

func TestProbesSayWhichCheckFails(t *testing.T) {
	h := newFakeHub()
	url := startServer(t, h)
	for _, path := range []string{"/livez", "/readyz"} {
		if code, _, body := get(t, url+path); code != http.StatusOK || body != "ok" {
			t.Errorf("%s without checks: got %d %q", path, code, body)
		}
	}
	var caches, workers error
	h.health.Add(probes.Ready, "config", func() error { return nil })
	h.health.Add(probes.Ready, "caches", func() error { return caches })
	h.health.Add(probes.Live, "workers", func() error { return workers })
	for _, tc := range []struct {
		caches, workers error
		path            string
		code            int
		body            string
	}{
		{nil, nil, "/readyz", 200, "ok"},
		{nil, nil, "/readyz?verbose", 200, "[+]config ok\n[+]caches ok\nreadyz check passed\n"},
		{nil, nil, "/livez?verbose", 200, "[+]workers ok\nlivez check passed\n"},
		{errors.New("not\nfilled\n[+]lie ok"), nil, "/readyz", 500, "[+]config ok\n[-]caches failed: not filled [+]lie ok\nreadyz check failed\n"},
		{errors.New("not filled"), nil, "/livez", 200, "ok"},
		{nil, errors.New("all wait"), "/livez", 500, "[-]workers failed: all wait\nlivez check failed\n"},
		{nil, errors.New("all wait"), "/readyz", 200, "ok"},
	} {
		caches, workers = tc.caches, tc.workers
		code, header, body := get(t, url+tc.path)
		if code != tc.code || body != tc.body || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
			t.Errorf("%s with %v, %v: got %d %q", tc.path, tc.caches, tc.workers, code, body)
		}
	}
}

func TestABrokenDriverLeavesTheProcessReadyAndLive(t *testing.T) {
	h := newFakeHub()
	url := startServer(t, h)
	h.engage("a.example.com")
	h.setDriver("a.example.com", func(d *Driver) { d.Up, d.State, d.Reason = false, "Lost", "the connection has ended" })
	for _, path := range []string{"/livez", "/readyz"} {
		if code, _, body := get(t, url+path); code != http.StatusOK {
			t.Errorf("%s: got %d %s", path, code, body)
		}
	}
}

func TestLeaderElectionFailsWithTheError(t *testing.T) {
	var lost error
	h := newFakeHub()
	h.health.Add(probes.LeaderElection, "leases", func() error { return lost })
	url := startServer(t, h)
	if code, _, body := get(t, url+"/healthz/leader-election"); code != http.StatusOK || body != "ok" {
		t.Errorf("got %d %q", code, body)
	}
	lost = errors.New("the lease of a.example.com was not renewed")
	if code, _, body := get(t, url+"/healthz/leader-election"); code != http.StatusInternalServerError || !strings.Contains(body, lost.Error()) {
		t.Errorf("got %d %q", code, body)
	}
}
