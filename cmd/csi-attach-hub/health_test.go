package main

import (
	"encoding/json"
	"fmt"
	"html"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// troubled is a driver in some kind of trouble, with one volume that is stuck, or waits because a user has paused its driver.
type troubled struct {
	name     string
	settings string         // in drivers.yaml
	knobs    *fakecsi.Knobs // nil: nobody serves it
	health   status.HealthState
	driver   diagnosis.Verdict // of the first reason of its health, "" if it has none
	volume   diagnosis.Verdict // of the first reason of its volume's
}

func troubles() []troubled {
	// One try, so that the state of a volume does not change while the views are compared.
	const stuck, once = "stuckAfter: 2s", "stuckAfter: 2s, retry: {initial: 1h, max: 1h}"
	fail := func(code codes.Code, message string) *fakecsi.Knobs {
		return &fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: code, Message: message}}}
	}
	hang := &fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}}
	return []troubled{
		{"away", stuck, nil, status.Broken, diagnosis.SocketMissing, diagnosis.SocketMissing},
		{"unready", stuck, &fakecsi.Knobs{NotReady: new(true)}, status.Broken, diagnosis.DriverNotReady, diagnosis.DriverNotReady},
		{"hanging", stuck + ", timeout: 10m", hang, status.Attention, diagnosis.CallUnanswered, diagnosis.CallUnanswered},
		{"silent", once + ", timeout: 1s", hang, status.Broken, diagnosis.DriverUnresponsive, diagnosis.BackendError},
		{"failing", once, fail(codes.Internal, "array \x1b[31mbusy"), status.Attention, diagnosis.Stuck, diagnosis.BackendError},
		{"full", once, fail(codes.ResourceExhausted, "attachment limit of node id exceeded"), status.Attention, diagnosis.NodeFull, diagnosis.NodeFull},
		{"paused", stuck + ", mode: paused", &fakecsi.Knobs{}, status.Standby, diagnosis.DriverPaused, diagnosis.DriverPaused},
		{"observed", stuck + ", mode: observe", &fakecsi.Knobs{}, status.Attention, diagnosis.DriverObserved, diagnosis.DriverObserved},
		{"fine", stuck, &fakecsi.Knobs{}, status.Fine, "", ""},
	}
}

// views returns the drivers and the VolumeAttachments of the API by the name of the driver, once all are as they should be.
func (s *scene) views(rows []troubled) (map[string]status.Driver, map[string]status.Attachment) {
	s.t.Helper()
	var drivers map[string]status.Driver
	var attachments map[string]status.Attachment
	s.until(func() bool {
		drivers, attachments = map[string]status.Driver{}, map[string]status.Attachment{}
		var ds status.DriverList
		var as status.AttachmentList
		s.getJSON("/api/v1/drivers", &ds)
		s.getJSON("/api/v1/attachments?node=health-node", &as)
		for _, d := range ds.Drivers {
			drivers[d.Name] = d
		}
		for _, a := range as.Attachments {
			attachments[a.Driver] = a
		}
		return len(as.Attachments) == len(rows) && !slices.ContainsFunc(rows, func(row troubled) bool {
			d, a := drivers[s.prefix+"-"+row.name], attachments[s.prefix+"-"+row.name]
			return d.Health.State != row.health || first(d.Health) != row.driver || first(a.Health) != row.volume ||
				d.Health.Needs() && (d.Work().Stuck != 1 || a.State != status.Stuck)
		})
	}, func() string {
		text := "the drivers never came to the health that is wanted:"
		for _, row := range rows {
			d, a := drivers[s.prefix+"-"+row.name], attachments[s.prefix+"-"+row.name]
			text += fmt.Sprintf("\n%s: %s %q, stuck %d; %s %q", row.name, d.Health.State, facts(d.Health), d.Work().Stuck, a.State, facts(a.Health))
		}
		return text
	})
	return drivers, attachments
}

// first returns the verdict of the first reason.
func first(h status.Health) diagnosis.Verdict {
	if len(h.Reasons) == 0 {
		return ""
	}
	return h.Reasons[0].Verdict
}

// facts returns what reasons say, without their ages.
func facts(h status.Health) []string {
	var all []string
	for _, r := range h.Reasons {
		all = append(all, fmt.Sprintf("%s %s: %s", r.State, r.Verdict, r.Fact))
	}
	return all
}

// textOf returns the text of a page.
func textOf(page string) string {
	_, page, _ = strings.Cut(page, "<main")
	return strings.Join(strings.Fields(html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " "))), " ")
}

// says reports whether a view has a text, without regard to spaces and backquotes: a page has tags in place of them, also
// within names.
func says(view, text string) bool {
	plain := strings.NewReplacer(" ", "", "\n", "", "`", "")
	return strings.Contains(plain.Replace(view), plain.Replace(text))
}

func TestAllViewsSayTheSameOfDriversInEveryKindOfTrouble(t *testing.T) {
	s := newScene(t, "health")
	rows, ids := troubles(), map[string]string{}
	for _, row := range rows {
		if row.knobs == nil {
			s.enter(&testbed.Driver{Name: s.prefix + "-" + row.name, Socket: filepath.Join(s.Dir, row.name)}, row.settings)
		} else {
			s.driver(row.name, row.settings, *row.knobs)
		}
	}
	for _, name := range s.drivers {
		ids[name] = "id"
	}
	s.create(testbed.Node{Name: "health-node"}, testbed.CSINode{Node: "health-node", Drivers: ids})
	s.startHub()
	for _, name := range s.drivers {
		s.bound(name, name, "health-node", nil)
		s.attach(name, name, "health-node")
	}
	drivers, attachments := s.views(rows)

	var report statustable.Report
	s.printed(&report, "status", "-o", "json")
	if _, _, code := s.ask("status", "--fail-on=broken"); code != exitTrouble || report.Summary.Health != status.Broken {
		t.Errorf("exit code %d, and status says %s", code, report.Summary.Health)
	}
	table, _, _ := s.ask("status")
	overview := textOf(s.get("/"))
	metrics, err := testbed.Metrics(s.ctx, s.hub.URL+"/metrics")
	s.must(err)
	for _, name := range s.drivers {
		d, want := drivers[name], facts(drivers[name].Health)
		differs := func(view string, got []string) {
			t.Helper()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s says something else than the API (-API +%s):\n%s", name, view, view, diff)
			}
		}
		differs("status", facts(report.Driver(name).Health))
		if got := report.Driver(name).Health; !got.Since.Equal(d.Health.Since) || got.State != d.Health.State {
			t.Errorf("%s: status says %s since %s, the API %s since %s", name, got.State, got.Since, d.Health.State, d.Health.Since)
		}
		var explained explain.Report
		code := s.printed(&explained, "explain", "driver/"+name, "-o", "json")
		var reasons []string
		for i, r := range explained.Subject.Reasons {
			reasons = append(reasons, fmt.Sprintf("%s %s: %s", r.State, r.Verdict, d.Health.Reasons[i].Fact))
			if !strings.HasPrefix(r.Fact, d.Health.Reasons[i].Fact) || !r.Since.Equal(d.Health.Reasons[i].Since) {
				t.Errorf("%s: explain says %q since %s, the API %+v", name, r.Fact, r.Since, d.Health.Reasons[i])
			}
		}
		differs("explain", reasons)
		if (code == 1) != d.Health.Needs() || string(explained.Result) != string(d.Health.State) {
			t.Errorf("%s: explain says %s with exit code %d, the API %s", name, explained.Result, code, d.Health.State)
		}
		page := textOf(s.get("/drivers/" + name))
		for i, r := range d.Health.Reasons {
			for view, text := range map[string]string{"status": table, "page /": overview, "page of the driver": page} {
				if (view != "page /" || i == 0) && !says(text, r.Fact) {
					t.Errorf("%s: the %s does not say %q", name, view, r.Fact)
				}
			}
		}
		value := func(metric string, labels ...string) float64 {
			return testbed.SumMetric(metrics[metric], append(labels, "driver", name)...)
		}
		if value("attach_hub_driver_health", "health", string(d.Health.State)) != 1 || value("attach_hub_driver_health") != 1 {
			t.Errorf("%s: the metric of health is not that of the API, %s", name, d.Health.State)
		}
		if got := value("attach_hub_stuck", "operation", "attach"); got != float64(d.Work().Stuck) {
			t.Errorf("%s: the metric says that %v are stuck, the API %d", name, got, d.Work().Stuck)
		}
		if got := value("attach_hub_call_oldest_seconds", "operation", "attach"); (got > 0) != strings.HasSuffix(name, "hanging") {
			t.Errorf("%s: the oldest call is %v s old by the metric", name, got)
		}
	}

	var volumes struct{ Volumes []status.Attachment }
	s.printed(&volumes, "volumes", "--node", "health-node", "-o", "json")
	if len(volumes.Volumes) != len(s.drivers)-1 {
		t.Errorf("volumes lists %d in trouble, want %d", len(volumes.Volumes), len(s.drivers)-1)
	}
	for _, v := range volumes.Volumes {
		a := attachments[v.Driver]
		if diff := cmp.Diff(facts(a.Health), facts(v.Health)); diff != "" || (v.Health.State == status.Broken) != drivers[v.Driver].Health.Needs() {
			t.Errorf("%s: volumes says something else than the API (-API +volumes):\n%s", v.Name, diff)
		}
		// The hub has no right on Pods: the command reads them with that of its user.
		if want := []string{"default/" + v.Name}; !slices.Equal(v.Pods, want) || len(a.Pods) != 0 {
			t.Errorf("%s: volumes names the Pods %v, want %v, the API %v, want none", v.Name, v.Pods, want, a.Pods)
		}
		if page := textOf(s.get("/attachments/" + a.Name)); !says(page, a.Health.Reasons[0].Fact) {
			t.Errorf("%s: the page does not say %q:\n%s", a.Name, a.Health.Reasons[0].Fact, page)
		}
		// explain knows more: that nobody holds the lease of an observed driver, say.
		for _, question := range []string{a.Name, "pod/default/" + a.Name} {
			var explained explain.Report
			code := s.printed(&explained, "explain", question, "-o", "json")
			if stop := explained.Volumes[0].Stop; (code == 1) != (a.Health.Needs() || first(a.Health) == diagnosis.DriverPaused) || stop == nil || stop.Verdict != first(a.Health) {
				t.Errorf("%s: explain stops at %+v with exit code %d, the API says %s", question, stop, code, first(a.Health))
			}
		}
	}
	if out, _, _ := s.ask("explain", "health-failing"); !strings.Contains(out, "busy") || strings.Contains(out, "\x1b") {
		t.Errorf("the error is not shown, or acts on the terminal:\n%s", out)
	}
}

// printed runs a command that prints JSON, and returns its exit code.
func (s *scene) printed(into any, args ...string) (code int) {
	s.t.Helper()
	out, problems, code := s.ask(args...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		s.t.Fatalf("%v: exit code %d, %v: %s", args, code, err, problems)
	}
	return code
}
