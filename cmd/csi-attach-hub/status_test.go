package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
)

// fakeHub serves the API of one replica: a driver of the name and state of health, and VolumeAttachments.
func fakeHub(t *testing.T, health status.HealthState, all ...status.Attachment) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch q := r.URL.Query(); r.URL.Path {
		case "/api/v1/overview":
			answer = status.Overview{Identity: "hub-0", Unserved: map[string]int{"stray.example.com": 1}}
		case "/api/v1/drivers":
			answer = status.DriverList{Drivers: []status.Driver{{Name: "d.example.com", State: "Ready", Up: true, Mode: "active", Health: status.Health{State: health},
				Lease: status.Lease{Holder: "hub-0", Mine: true}, Lanes: []status.Lane{{Running: 1}}}}}
		default:
			list := status.AttachmentList{}
			for _, a := range all {
				selected := func(key, value string) bool {
					return q.Get(key) == "" || slices.Contains(strings.Split(q.Get(key), ","), value)
				}
				if selected("driver", a.Driver) && selected("node", a.Node) && selected("state", string(a.State)) && selected("health", string(a.Health.State)) {
					list.Attachments = append(list.Attachments, a)
				}
			}
			answer = list
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// runHere runs a command and returns what it printed and its exit code.
func runHere(args ...string) (stdout, stderr string, code int) {
	var out, problems bytes.Buffer
	code = run(args, &out, &problems)
	return out.String(), problems.String(), code
}

func TestFailOnEndsWithItsExitCode(t *testing.T) {
	volume := func(s status.HealthState) status.Attachment {
		return status.Attachment{Name: "v", Driver: "d.example.com", State: status.Stuck, Health: status.Health{State: s}}
	}
	for name, test := range map[string]struct {
		driver            status.HealthState
		volumes           []status.Attachment
		broken, attention int // exit codes
	}{
		"all fine":        {status.Fine, nil, 0, 0},
		"standby":         {status.Standby, nil, 0, 0},
		"driver worried":  {status.Attention, nil, 0, exitTrouble},
		"driver broken":   {status.Broken, nil, exitTrouble, exitTrouble},
		"a volume waits":  {status.Fine, []status.Attachment{volume(status.Attention)}, 0, exitTrouble},
		"a volume broken": {status.Attention, []status.Attachment{volume(status.Broken)}, exitTrouble, exitTrouble},
	} {
		t.Run(name, func(t *testing.T) {
			server := fakeHub(t, test.driver, test.volumes...)
			for failOn, want := range map[string]int{"broken": test.broken, "attention": test.attention, "": 0} {
				for _, output := range []string{"table", "json"} {
					out, problems, code := runHere("status", "--server", server, "--fail-on", failOn, "-o", output)
					if code != want || problems != "" || !strings.Contains(out, "d.example.com") {
						t.Errorf("--fail-on=%s -o %s: exit code %d, want %d:\n%s%s", failOn, output, code, want, out, problems)
					}
				}
			}
		})
	}
	if _, _, code := runHere("status", "--server", "http://127.0.0.1:1", "--fail-on=broken"); code != exitNoAnswer {
		t.Errorf("no replica answers: exit code %d, want 3", code)
	}
}

func TestMistakesOnTheCommandLineNameTheValidValues(t *testing.T) {
	for args, words := range map[string]string{
		"status --fail-on=fine":           "--fail-on|fine|broken or attention",
		"status -o name":                  "--output|name|table, wide or json",
		"volumes --state stcuk,failing,x": `--state "stcuk"|--state "x"|attaching, attached, detaching, waiting, failing, stuck, unserved, idle`,
		"volumes --health bad":            `--health "bad"|broken, attention, standby, fine`,
		"volumes --all --state stuck":     "all state",
		"volumes --all --health fine":     "all health",
		"volumes -o yaml":                 "table, wide, json or name",
		"volumes stuck":                   "stuck",
	} {
		// Nothing listens there: a mistake is found before anybody is asked.
		out, problems, code := runHere(append(strings.Fields(args), "--server", "http://127.0.0.1:1")...)
		if code != exitUsage || out != "" || strings.Contains(problems, "refused") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", args, code, out, problems)
		}
		for word := range strings.SplitSeq(words, "|") {
			if !strings.Contains(problems, word) {
				t.Errorf("%s: %q is not in %q", args, word, problems)
			}
		}
	}
}

// The program "watch" gives its width to what it runs in COLUMNS: a line that is too long would be cut there.
func TestTablesHaveTheWidthThatWatchGives(t *testing.T) {
	t.Setenv("COLUMNS", "80")
	if got, wide := tableStyle(io.Discard, false), tableStyle(io.Discard, true); got.Width != 80 || got.Color || wide.Width != 0 {
		t.Errorf("got %+v, and %+v with whole texts", got, wide)
	}
}

func TestJSONOfStatusIsAReport(t *testing.T) {
	server := fakeHub(t, status.Broken, status.Attachment{Name: "v", Driver: "d.example.com", State: status.Stuck, Health: status.Health{State: status.Broken}})
	out, problems, code := runHere("status", "--server", server, "-o", "json")
	var r statustable.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("%v, exit code %d: %s", err, code, problems)
	}
	if r.Summary.Health != status.Broken || r.Summary.Volumes.Broken != 1 || len(r.VolumesInTrouble) != 1 || r.Driver("d.example.com") == nil || r.AsOf.IsZero() {
		t.Errorf("got %+v", r)
	}
}
