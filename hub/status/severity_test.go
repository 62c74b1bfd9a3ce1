package status

import (
	"strings"
	"testing"
	"time"
)

func TestDriversAreJudgedByWhatTheirVolumesSuffer(t *testing.T) {
	now := time.Unix(1700000000, 0)
	for name, test := range map[string]struct {
		change func(*Driver)
		want   severity
		first  string // note
	}{
		"ready":                      {func(*Driver) {}, fine, ""},
		"a call runs":                {func(d *Driver) { d.Lanes[0].Running = 3 }, fine, ""},
		"queued for a moment":        {func(d *Driver) { d.Lanes[0].Queued, d.Lanes[0].OldestSeconds = 100, 3 }, fine, ""},
		"queued for long":            {func(d *Driver) { d.Lanes[0].Queued, d.Lanes[0].OldestSeconds = 100, 90 }, attention, "100 wait, the oldest for 1 min 30 s"},
		"retries":                    {func(d *Driver) { d.Lanes[1].Delayed = 2 }, attention, "2 to be tried again"},
		"stuck":                      {func(d *Driver) { d.Lanes[1].Stuck = 1 }, broken, "1 stuck"},
		"lost":                       {func(d *Driver) { d.State, d.Up, d.Lanes[0].Stuck = "Lost", false, 4 }, broken, "cannot be called"},
		"begins to connect":          {func(d *Driver) { d.State, d.Up, d.Since = "Connecting", false, now }, attention, "not connected yet"},
		"cannot connect":             {func(d *Driver) { d.State, d.Up, d.Since, d.ConnectionError.Text = "Connecting", false, now, "refused" }, broken, "cannot be called"},
		"connects for long":          {func(d *Driver) { d.State, d.Up = "Connecting", false }, broken, "cannot be called"},
		"paused":                     {func(d *Driver) { d.State, d.Mode = "Paused", "paused" }, standby, ""},
		"paused by the hub":          {func(d *Driver) { d.State = "Paused" }, broken, "paused by the hub"},
		"another replica has it":     {func(d *Driver) { d.State, d.Lease = "WaitingForLease", Lease{Holder: "hub-1"} }, standby, ""},
		"another attacher has it":    {func(d *Driver) { d.State, d.Lease = "WaitingForLease", Lease{Holder: "sidecar"} }, attention, "its lease is held by another attacher"},
		"nobody has it":              {func(d *Driver) { d.State, d.Lease = "WaitingForLease", Lease{} }, attention, "nobody holds its lease"},
		"nobody has it for a moment": {func(d *Driver) { d.State, d.Lease, d.Since = "WaitingForLease", Lease{}, now }, standby, ""},
		"drains":                     {func(d *Driver) { d.State = "Draining" }, attention, "its work is being ended"},
		"a foreign writer":           {func(d *Driver) { d.ForeignWriter = ForeignWriter{Manager: "csi-attacher", Time: now.Add(-time.Minute)} }, attention, "another attacher writes: csi-attacher"},
		"a foreign writer once": {func(d *Driver) {
			d.ForeignWriter = ForeignWriter{Manager: "csi-attacher", Time: now.Add(-25 * time.Hour)}
		}, fine, ""},
		"observed and agreed": {func(d *Driver) {
			d.Mode, d.Observed, d.Checklist = "observe", &Observed{Agreed: 3}, []Check{{OK: true}}
		}, fine, ""},
		"observed and disagreed":        {func(d *Driver) { d.Mode, d.Observed = "observe", &Observed{Differs: 1} }, attention, "1 decision disagrees"},
		"observed with an open check":   {func(d *Driver) { d.Mode, d.Checklist = "observe", []Check{{OK: true}, {}} }, attention, "1 of 2 checks open"},
		"a state that nobody knows yet": {func(d *Driver) { d.State = "Dreaming" }, fine, ""},
	} {
		d := Driver{Name: "a", State: "Ready", Up: true, Mode: "active", Since: now.Add(-time.Hour), Lease: Lease{Holder: "hub-0", Mine: true}, Lanes: []Lane{{Operation: Attach}, {Operation: Detach}}}
		test.change(&d)
		got := judge(d, history{}, map[string]bool{"hub-0": true, "hub-1": true}, time.Time{}, now)
		if got.Severity != test.want || test.first != "" && (len(got.Notes) == 0 || got.Notes[0] != test.first) || test.first == "" && len(got.Notes) > 0 {
			t.Errorf("%s: got %s %q", name, got.Severity, got.Notes)
		}
	}
}

// A driver that takes calls and never answers fails nothing until the timeout, of
// minutes or hours.
func TestADriverThatHangsNeedsAttention(t *testing.T) {
	h := newBusyHub(3, 0)
	since := time.Now().Add(-30 * time.Minute)
	h.attachments["hangs"] = Attachment{Name: "hangs", Driver: busyName(0), State: Attaching, Operation: Attach, Since: since}
	h.attachments["runs"] = Attachment{Name: "runs", Driver: busyName(0), State: Detaching, Operation: Detach, Since: time.Now()}
	h.attachments["old"] = Attachment{Name: "old", Driver: busyName(2), State: Attached, Since: since}
	u := startServer(t, h)
	for _, path := range []string{"/?q=calls+take+long", "/drivers/" + busyName(0)} {
		if _, _, body := get(t, u+path); !strings.Contains(body, "calls take long, the oldest is wanted for 30 min") || !strings.Contains(body, "row-attention") {
			t.Errorf("%s: got %s", path, body)
		}
	}
}

func TestWordsForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 0: "0 s", time.Microsecond: "1 ms", 62 * time.Millisecond: "62 ms", 1240 * time.Millisecond: "1.2 s", 3 * time.Second: "3 s", 59999 * time.Millisecond: "59 s",
		60 * time.Second: "1 min", 200 * time.Second: "3 min 20 s", 43*time.Minute + 5*time.Second: "43 min", 5*time.Hour + 3*time.Minute: "5 h 3 min", 50 * time.Hour: "2 d 2 h", 400 * 24 * time.Hour: "400 d",
	} {
		if got := duration(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := count(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 111: "111th", 1002: "1,002nd"} {
		if got := ordinal(n); got != want {
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
