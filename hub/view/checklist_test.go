package view

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
)

func TestCheckOfTheLeaseIsPassedOnlyWhereTheRightHolderRenewsIt(t *testing.T) {
	now := time.Now()
	named := func(l status.Lease) status.Lease {
		l.Namespace, l.Name = "ns", "l"
		return l
	}
	for text, c := range map[string]struct {
		mode  string
		lease status.Lease
		ok    bool
	}{
		"nobody holds ns/l": {"observe", named(status.Lease{}), false},
		"not known yet: the hub has not seen sidecar renew ns/l": {"observe", named(status.Lease{Holder: "sidecar"}), false},
		"ns/l was not renewed for 3m45s, last by sidecar: nobody holds it; made active, the hub takes it at once": {"observe",
			named(status.Lease{LastHolder: "sidecar", Renewed: now.Add(-225 * time.Second)}), false},
		"nobody holds ns/l: the driver is paused":                      {"paused", named(status.Lease{LastHolder: "hub-0"}), true},
		"ns/l is held by sidecar: made active, the hub waits for it":   {"paused", named(status.Lease{Holder: "sidecar", Renews: true}), true},
		"ns/l is held by this replica":                                 {"active", named(status.Lease{Holder: "hub-0", Mine: true}), true},
		"ns/l is held by hub-1, another replica of the hub":            {"active", named(status.Lease{Holder: "hub-1", Renews: true}), true},
		"ns/l: held by another attacher (sidecar)":                     {"active", named(status.Lease{Holder: "sidecar", Renews: true}), false},
		"ns/l: has no holder, so nobody serves":                        {"active", named(status.Lease{}), false},
		"this hub runs without leader election":                        {"observe", status.Lease{}, false},
		"this hub runs without leader election: no other attacher may": {"active", status.Lease{Mine: true}, true},
	} {
		got := checkLease(Driver{Driver: status.Driver{Up: true, Mode: c.mode, Lease: c.lease, Reason: "not tried yet"}, isServedElsewhere: c.lease.Holder == "hub-1"}, now)
		if !strings.HasPrefix(got.Text, text) || got.OK != c.ok || got.OK != (len(got.Actions) == 0) && !strings.HasPrefix(text, "not known") {
			t.Errorf("%+v, want %q", got, text)
		}
	}
}

func TestEndpointAndNameAreCheckedApart(t *testing.T) {
	for name, c := range map[string]struct {
		driver         status.Driver
		endpoint, name bool
		words          string
	}{
		"answers":         {status.Driver{Up: true, State: "Ready", Version: "1.2"}, true, true, "version 1.2"},
		"another answers": {status.Driver{State: "NameMismatch", Source: "drivers.yaml:3", Reason: "reports the name b"}, true, false, "drivers.yaml:3"},
		"never answered":  {status.Driver{State: "Connecting", Reason: "no such file or directory"}, false, false, "not answered yet"},
		"its socket is gone": {status.Driver{Up: true, State: "Ready", Version: "1.2", Fault: diagnosis.New(diagnosis.SocketMissing, "driver a", "its socket is gone", "", "Restart it.")},
			false, true, "its socket is goneRestart it."},
		"lost": {status.Driver{State: "Lost", Reason: "connection refused", Version: "1.2"}, false, true, "Check that"},
	} {
		c.driver.Name, c.driver.Endpoint = "a", "unix:///a"
		endpoint, named := checkEndpoint(c.driver, status.Check{}), checkName(Driver{Driver: c.driver, Known: c.driver.Version != ""})
		all := endpoint.Text + strings.Join(endpoint.Actions, " ") + named.Text + strings.Join(named.Actions, " ")
		if endpoint.OK != c.endpoint || named.OK != c.name || !strings.Contains(all, c.words) {
			t.Errorf("%s: %+v, %+v", name, endpoint, named)
		}
	}
}

// Each page that is open asks every few seconds, and a StorageClass may give each volume a Secret of its own.
func TestRequestsForAChecklistAreMadeOnceForAllWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, d := standby(t)
		requests := 0
		v.Rights = func(context.Context, lease.Name) ([]rights.Right, error) {
			requests++
			time.Sleep(time.Second)
			return nil, nil
		}
		var pages sync.WaitGroup
		for range 5 {
			pages.Go(func() { v.Ask(t.Context(), d) })
		}
		pages.Wait()
		if requests != 1 || v.lastAnswers(d).rights.Text == "" {
			t.Errorf("%d requests, answer %+v, want one request", requests, v.lastAnswers(d).rights)
		}
	})
}
