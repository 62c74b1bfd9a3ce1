package status

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDriversAreJudgedByWhatTheirVolumesSuffer(t *testing.T) {
	now := time.Unix(1700000000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	hour := ago(time.Hour)
	for name, test := range map[string]struct {
		change func(*Driver)
		want   HealthState
		since  time.Time
		first  string // reason
	}{
		"ready": {func(*Driver) {}, Fine, time.Time{}, ""},
		"a call runs": {func(d *Driver) {
			d.Lanes[0].Running, d.Lanes[0].OldestCall = 3, Call{"ControllerPublishVolume", ago(5 * time.Second), "va"}
		}, Fine, time.Time{}, ""},
		"queued for a moment": {func(d *Driver) { d.Lanes[0].Queued, d.Lanes[0].OldestSince = 100, ago(3*time.Second) }, Fine, time.Time{}, ""},
		"queued for long":     {func(d *Driver) { d.Lanes[0].Queued, d.Lanes[0].OldestSince = 100, ago(90*time.Second) }, Attention, ago(90 * time.Second), "100 volumes wait, the oldest for 90s"},
		"retries":             {func(d *Driver) { d.Lanes[1].Failing, d.Failures = 2, []Failure{{Text: "array busy"}} }, Attention, time.Time{}, "2 volumes failing: last error: array busy"},
		"stuck":               {func(d *Driver) { d.Lanes[1].Stuck, d.Lanes[1].StuckSince = 1, hour }, Attention, hour, "1 volume stuck for 60m"},
		"a call is unanswered": {func(d *Driver) {
			d.Lanes[0].Running, d.Busy, d.Lanes[0].OldestCall = 3, 3, Call{"ControllerPublishVolume", ago(8*time.Minute + 12*time.Second), "va"}
		}, Attention, ago(8*time.Minute + 12*time.Second), "ControllerPublishVolume unanswered for 8m12s: 3 of 20 calls in flight"},
		"no call is answered":                 {func(d *Driver) { d.UnansweredSince, d.Busy = ago(2*time.Minute), 10 }, Broken, ago(2 * time.Minute), "answers no call for 2m: 10 of 20 calls in flight"},
		"no call was answered, and none runs": {func(d *Driver) { d.UnansweredSince, d.Busy = ago(2*time.Minute), 0 }, Broken, ago(2 * time.Minute), "answers no call for 2m"},
		"no call is answered before the timeout": {func(d *Driver) {
			d.UnansweredSince, d.Settings.Timeout = ago(2*time.Minute), metav1.Duration{Duration: 6 * time.Minute}
		}, Fine, time.Time{}, ""},
		"lost": {func(d *Driver) { d.State, d.Up, d.DownSince, d.Since, d.Reason = "Lost", false, hour, now, "refused" }, Broken, hour, "cannot be called at unix:///s for 60m: refused"},
		"lost with work": {func(d *Driver) {
			d.State, d.Up, d.DownSince, d.Lanes[0].Queued, d.Lanes[0].OldestSince = "Lost", false, ago(time.Minute), 3, ago(5*time.Second)
		}, Broken, ago(time.Minute), "cannot be called at unix:///s for 60s|3 volumes wait, the oldest for 5s"},
		"lost, and no replica holds its lease": {func(d *Driver) {
			d.State, d.Up, d.DownSince, d.Reason, d.Lease = "Lost", false, hour, "refused", Lease{Name: "l"}
		}, Broken, hour, "cannot be called at unix:///s for 60m: refused; its lease has no holder"},
		"lost, and another replica works for it": {func(d *Driver) { d.State, d.Up, d.DownSince, d.Lease = "Lost", false, hour, Lease{Holder: "hub-1"} }, Attention, hour, "cannot be called at unix:///s for 60m"},
		"begins to connect":                      {func(d *Driver) { d.State, d.Up, d.DownSince = "Connecting", false, now }, Attention, now, "not connected yet to unix:///s for 0s"},
		"cannot connect": {func(d *Driver) {
			d.State, d.Up, d.DownSince, d.ConnectionError.Text = "Connecting", false, now, "refused"
		}, Broken, now, "cannot be called at unix:///s for 0s: refused"},
		"connects for long":            {func(d *Driver) { d.State, d.Up, d.DownSince = "Connecting", false, hour }, Broken, hour, "cannot be called at unix:///s for 60m"},
		"paused":                       {func(d *Driver) { d.State, d.Mode = "Paused", "paused" }, Standby, hour, "paused for 60m: `mode: paused` in drivers.yaml"},
		"paused, and cannot be called": {func(d *Driver) { d.State, d.Mode, d.Up = "Lost", "paused", false }, Standby, hour, "cannot be called at unix:///s for 60m"},
		"paused with work": {func(d *Driver) {
			d.State, d.Mode, d.Lanes[0].Queued, d.Lanes[0].OldestSince = "Paused", "paused", 1, ago(2*time.Hour)
		}, Standby, hour, "paused for 60m: `mode: paused` in drivers.yaml|1 volume waits for 120m"},
		"another replica has it":     {func(d *Driver) { d.State, d.Lease = "WaitingForLease", Lease{Name: "l", Holder: "hub-1"} }, Standby, time.Time{}, "held by another replica of the hub (hub-1)"},
		"another attacher has it":    {func(d *Driver) { d.State, d.Lease = "WaitingForLease", Lease{Holder: "sidecar"} }, Attention, time.Time{}, "held by another attacher (sidecar)"},
		"nobody has it":              {func(d *Driver) { d.State, d.Lease = "WaitingForLease", Lease{} }, Broken, time.Time{}, "has no holder, so nobody serves the driver yet"},
		"nobody has it for a moment": {func(d *Driver) { d.State, d.Lease, d.Since = "WaitingForLease", Lease{}, now }, Attention, time.Time{}, "has no holder, so nobody serves the driver yet"},
		"its lease has expired a moment ago": {func(d *Driver) {
			d.State, d.Lease = "WaitingForLease", Lease{Name: "l", LastHolder: "sidecar", Renewed: ago(20 * time.Second)}
		}, Attention, ago(20 * time.Second), "not renewed by its holder sidecar for 20s"},
		"its lease has expired, and volumes wait": {func(d *Driver) {
			d.State, d.Lease, d.Lanes[1].Queued = "WaitingForLease", Lease{Name: "l", LastHolder: "sidecar", Renewed: hour}, 1
		}, Broken, hour, "not renewed by its holder sidecar for 60m"},
		"its lease is missing, and volumes wait": {func(d *Driver) {
			d.State, d.Since, d.Lease, d.Lanes[1].Queued, d.Reason = "WaitingForLease", now, Lease{Name: "l"}, 1, "the lease cannot be taken: lease ns/l does not exist, and the hub may not create it"
		}, Broken, time.Time{}, "cannot be taken: lease ns/l does not exist, and the hub may not create it"},
		"drains":                              {func(d *Driver) { d.State, d.Reason = "Draining", "2 calls in flight" }, Attention, hour, "draining for 60m: 2 calls in flight"},
		"a foreign writer":                    {func(d *Driver) { d.ForeignWriter = ForeignWriter{"kubectl-patch", ago(time.Minute), "csi-1"} }, Attention, time.Time{}, "something else writes its VolumeAttachments: kubectl-patch, last VolumeAttachment csi-1 60s ago"},
		"a foreign writer once":               {func(d *Driver) { d.ForeignWriter = ForeignWriter{Manager: "csi-attacher", Time: ago(25 * time.Hour)} }, Fine, time.Time{}, ""},
		"called before, and cannot be called": {func(d *Driver) { d.RecordedCalls, d.Capabilities = 2, []string{"CONTROLLER_SERVICE"} }, Broken, time.Time{}, "has no PUBLISH_UNPUBLISH_VOLUME, but VolumeAttachments record calls to it: 2 VolumeAttachments have the finalizer or the node ID; unix:///s may be the socket of its node plugin"},
		"called before, and is a node plugin": {func(d *Driver) { d.RecordedCalls = 2 }, Broken, time.Time{}, "has no CONTROLLER_SERVICE, but VolumeAttachments record calls to it: 2 VolumeAttachments have the finalizer or the node ID; unix:///s may be the socket of its node plugin"},
		"called before, and another attacher has it": {func(d *Driver) {
			d.State, d.Lease, d.RecordedCalls = "WaitingForLease", Lease{Name: "l", Holder: "sidecar"}, 2
		}, Attention, time.Time{}, "held by another attacher (sidecar)|"},
		"called before, and only observed": {func(d *Driver) {
			d.RecordedCalls, d.Mode, d.Lease, d.Checklist = 2, "observe", Lease{Name: "l", Holder: "sidecar"}, []Check{{}}
		}, Attention, time.Time{}, "1 of 1 checks open"},
		"attachRequired became false": {func(d *Driver) { d.NoAttach, d.Lanes[1].Queued, d.Lanes[1].Delayed = true, 8, 1 }, Attention, time.Time{},
			"has attachRequired: false, and the driver has PUBLISH_UNPUBLISH_VOLUME: the hub detaches its volumes unless their node uses them, and attaches none"},
		"attachRequired is false, and only observed": {func(d *Driver) {
			d.NoAttach, d.Mode, d.Lease, d.Checklist = true, "observe", Lease{Name: "l", Holder: "sidecar"}, []Check{{OK: true}}
		}, Standby, hour, ""},
		"dangling": {func(d *Driver) { d.DanglingCount, d.Dangling = 1, []DanglingPublication{{Since: hour}} }, Attention, hour, "1 volume dangling for 60m: attached without a VolumeAttachment"},
		"observed and agreed": {func(d *Driver) {
			d.Mode, d.Lease, d.Observed, d.Checklist = "observe", Lease{Name: "l", Holder: "sidecar"}, &Observed{Agreed: 3}, []Check{{OK: true}}
		}, Standby, hour, "only observed for 60m: `mode: observe` in drivers.yaml; its lease is held by sidecar"},
		"observed, and nobody holds the lease": {func(d *Driver) { d.Mode, d.Lease = "observe", Lease{Name: "l"} }, Attention, hour, "only observed for 60m: `mode: observe` in drivers.yaml; its lease has no holder, so its volumes may not be attached at all"},
		"observed, and the lease has expired": {func(d *Driver) {
			d.Mode, d.Lease = "observe", Lease{Name: "l", LastHolder: "sidecar", Renewed: hour}
		}, Attention, hour, "only observed for 60m: `mode: observe` in drivers.yaml; its lease has expired, last held by sidecar, so its volumes may not be attached at all"},
		"observed, and a volume waits for the other attacher": {func(d *Driver) {
			d.Mode, d.Lease, d.Lanes[0].Queued, d.Lanes[0].OldestSince = "observe", Lease{Name: "l", Holder: "sidecar"}, 1, ago(5*time.Second)
		}, Standby, hour, ""},
		"observed, and a volume waits for long": {func(d *Driver) {
			d.Mode, d.Lease, d.Lanes[0].Queued, d.Lanes[0].OldestSince = "observe", Lease{Name: "l", Holder: "sidecar"}, 1, ago(90*time.Second)
		}, Attention, ago(90 * time.Second), "1 volume waits for 90s"},
		"observed and disagreed":        {func(d *Driver) { d.Mode, d.Observed = "observe", &Observed{Differs: 1} }, Attention, time.Time{}, "1 observed decision disagrees"},
		"observed with an open check":   {func(d *Driver) { d.Mode, d.Checklist = "observe", []Check{{OK: true}, {}} }, Attention, time.Time{}, "1 of 2 checks open"},
		"a state that nobody knows yet": {func(d *Driver) { d.State = "Dreaming" }, Fine, time.Time{}, ""},
	} {
		d := Driver{Name: "a", State: "Ready", Up: true, Mode: "active", Endpoint: "unix:///s", Since: hour, Workers: 20, Lease: Lease{Holder: "hub-0", Mine: true}, Lanes: []Lane{{Operation: Attach}, {Operation: Detach}}}
		test.change(&d)
		got := HealthOfDriver(d, []string{"hub-0", "hub-1"}, now)
		if got.State != test.want || !got.Since.Equal(test.since) || (test.want == Fine) != (len(got.Reasons) == 0) {
			t.Errorf("%s: got %+v", name, got)
			continue
		}
		for i, want := range strings.Split(test.first, "|") {
			if want != "" && got.Reasons[i].Text(now) != want {
				t.Errorf("%s: got %q, want %q", name, got.Reasons[i].Text(now), want)
			}
		}
	}
}

func TestWordsForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 62 * time.Millisecond: "62ms", 1240 * time.Millisecond: "1.2s", 3 * time.Second: "3s", 11900 * time.Millisecond: "12s", 60 * time.Second: "1m", 200 * time.Second: "3m20s", time.Hour: "1h",
	} {
		if got := latency(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := count(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
	for text, want := range map[string]string{
		"plain\nlines\tstay": "plain\nlines\tstay", "bell\a and \x1b[31m": "bell\uFFFD and \uFFFD[31m", "\u202eback": "\uFFFDback", "no \xff UTF-8": "no \uFFFD UTF-8",
		strings.Repeat("x", 41): strings.Repeat("x", 40) + " … (1 more bytes)",
	} {
		if got := sanitize(text, 40); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// withoutAttachments is a hub whose VolumeAttachments must not be looked at.
type withoutAttachments struct {
	*fakeHub
	t *testing.T
}

func (h withoutAttachments) Attachments(AttachmentFilter) []Attachment {
	h.t.Error("somebody looked at the VolumeAttachments")
	return nil
}

// A driver may have a hundred thousand VolumeAttachments, and each look may lead to a listing of Pods.
func TestAScrapeLooksAtNoVolumeAttachment(t *testing.T) {
	h := newFakeHub()
	h.engage("a.example.com")
	h.setDriver("a.example.com", func(d *Driver) {
		d.State, d.Up, d.DownSince, d.Lanes[0].Queued, d.Lanes[0].Stuck = "Lost", false, time.Now().Add(-time.Hour), 3, 1
	})
	families, err := h.metrics.Gatherer(withoutAttachments{h, t}).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "attach_hub_driver_health" {
			return
		}
	}
	t.Error("the scrape has no health of drivers")
}
