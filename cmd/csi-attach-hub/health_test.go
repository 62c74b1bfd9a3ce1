package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

var update = flag.Bool("update", false, "write the golden files")

// healthScene is a hub with drivers in each kind of trouble, each with one volume that is stuck, or
// waits because a user has paused its driver.
type healthScene struct {
	*scene
	server  string
	healths map[string]status.HealthState // wanted, by driver
}

func newHealthScene(t *testing.T) *healthScene {
	s := &healthScene{scene: newScene(t, "health"), healths: map[string]status.HealthState{}}
	ids := map[string]string{}
	add := func(name string, settings string, health status.HealthState, knobs *fakecsi.Knobs) {
		driver, socket := s.entry(name)
		s.config.WriteString(settings)
		s.healths[driver], ids[driver] = health, "id"
		if knobs == nil {
			return
		}
		s.startDriver(driver, socket, *knobs)
	}
	// One try, so that the state of a volume does not change while the views are compared.
	const stuck, once = "    stuckAfter: 2s\n", "    stuckAfter: 2s\n    retry: {initial: 1h, max: 1h}\n"
	fail := func(code codes.Code, message string) *fakecsi.Knobs {
		return &fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: code, Message: message}}}
	}
	hang := &fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}}
	add("away", stuck, status.Broken, nil)
	add("hanging", stuck+"    timeout: 10m\n", status.Attention, hang)
	add("silent", once+"    timeout: 1s\n", status.Broken, hang)
	add("failing", once, status.Attention, fail(codes.Internal, "array busy"))
	add("full", once, status.Attention, fail(codes.ResourceExhausted, "attachment limit of node id exceeded"))
	add("paused", stuck+"    mode: paused\n", status.Standby, &fakecsi.Knobs{})
	add("observed", stuck+"    mode: observe\n", status.Attention, &fakecsi.Knobs{})
	add("fine", stuck, status.Fine, &fakecsi.Knobs{})
	s.create(testbed.Node{Name: "health-node"}, testbed.CSINode{Node: "health-node", Drivers: ids})
	for _, driver := range s.drivers {
		s.bound(driver, driver, "health-node")
	}
	s.server = s.startVisibleHub()
	// In the order of their names, which is that of volumes of one second: lists have the oldest first.
	for _, driver := range slices.Sorted(slices.Values(s.drivers)) {
		s.attach(driver, driver, "health-node")
	}
	return s
}

// get returns the body of an answer of the hub.
func (s *healthScene) get(path string) string {
	s.t.Helper()
	response, err := http.Get(s.server + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s, %v", path, response.Status, err)
	}
	return string(body)
}

// api returns the drivers and the VolumeAttachments of the scene by the name of the driver, once all are as they
// should be.
func (s *healthScene) api() (map[string]status.Driver, map[string]status.Attachment) {
	s.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		drivers, attachments := map[string]status.Driver{}, map[string]status.Attachment{}
		var ds status.DriverList
		var as status.AttachmentList
		getJSON(s.t, s.server+"/api/v1/drivers", &ds)
		getJSON(s.t, s.server+"/api/v1/attachments?node=health-node", &as)
		ready := len(as.Attachments) == len(s.drivers)
		for _, d := range ds.Drivers {
			drivers[d.Name] = d
			ready = ready && d.Health.State == s.healths[d.Name] && (d.Health.State == status.Fine || (d.Work().Stuck == 1) == d.Health.Needs())
		}
		for _, a := range as.Attachments {
			attachments[a.Driver] = a
			ready = ready && (!needs(s.healths[a.Driver]) || a.State == status.Stuck)
		}
		// The calls in flight are old enough.
		ready = ready && hasReason(attachments["health-hanging"].Health, diagnosis.CallUnanswered) &&
			hasReason(drivers["health-hanging"].Health, diagnosis.CallUnanswered) && hasReason(drivers["health-silent"].Health, diagnosis.DriverUnresponsive)
		if ready {
			return drivers, attachments
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("the drivers never came to the health that is wanted: %+v\n%+v", drivers, attachments)
		}
	}
}

func needs(s status.HealthState) bool { return status.Health{State: s}.Needs() }

func hasReason(h status.Health, v diagnosis.Verdict) bool {
	return slices.ContainsFunc(h.Reasons, func(r status.Reason) bool { return r.Verdict == v })
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
	s := newHealthScene(t)
	s.waitFor("errors in the statuses of the drivers that the hub works for", func(own []*storagev1.VolumeAttachment) bool {
		n := 0
		for _, va := range own {
			if va.Status.AttachError != nil {
				n++
			}
		}
		return n == 4 // not health-away: no replica has its lease
	})
	drivers, attachments := s.api()

	out, problems, code := s.ask("status", "-o", "json", "--server", s.server)
	var report statustable.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
		t.Fatalf("status: exit code %d, %v: %s", code, err, problems)
	}
	table, _, _ := s.ask("status", "--server", s.server)
	overview := textOf(s.get("/"))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	metrics, err := parser.TextToMetricFamilies(strings.NewReader(s.get("/metrics")))
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string, labels ...string) float64 {
		for _, m := range metrics[name].GetMetric() {
			own := map[string]string{}
			for _, l := range m.GetLabel() {
				own[l.GetName()] = l.GetValue()
			}
			if !slices.ContainsFunc(labels, func(l string) bool { k, v, _ := strings.Cut(l, "="); return own[k] != v }) {
				return m.GetGauge().GetValue()
			}
		}
		t.Errorf("there is no metric %s %v", name, labels)
		return -1
	}

	var golden strings.Builder
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
		explained, code := s.report(func(explain.Report) bool { return true }, "driver/"+name, "--server", s.server)
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
		for _, r := range d.Health.Reasons {
			for view, text := range map[string]string{"status": table, "page /": overview, "page of the driver": page} {
				if view == "page /" && !says(text, d.Health.Reasons[0].Fact) || view != "page /" && !says(text, r.Fact) {
					t.Errorf("%s: the %s does not say %q", name, view, r.Fact)
				}
			}
		}
		for _, h := range status.HealthStates {
			if got := value("attach_hub_driver_health", "driver="+name, "health="+string(h)); (got == 1) != (h == d.Health.State) {
				t.Errorf("%s: the metric of health %s is %v, the API says %s", name, h, got, d.Health.State)
			}
		}
		if got := value("attach_hub_stuck", "driver="+name, "operation=attach"); got != float64(d.Work().Stuck) {
			t.Errorf("%s: the metric says that %v are stuck, the API %d", name, got, d.Work().Stuck)
		}
		if got := value("attach_hub_call_oldest_seconds", "driver="+name, "operation=attach"); (got > 0) != (strings.HasSuffix(name, "hanging")) {
			t.Errorf("%s: the oldest call is %v s old by the metric", name, got)
		}
		fmt.Fprintf(&golden, "# %s\n%s\n", name, explained.Text(statustable.Style{}, true))
	}

	list, _, _ := s.ask("volumes", "--node", "health-node", "-o", "json", "--server", s.server)
	var volumes struct{ Volumes []status.Attachment }
	if err := json.Unmarshal([]byte(list), &volumes); err != nil {
		t.Fatal(err)
	}
	if len(volumes.Volumes) != len(s.drivers)-1 {
		t.Errorf("volumes lists %d in trouble, want %d", len(volumes.Volumes), len(s.drivers)-1)
	}
	for _, v := range volumes.Volumes {
		a := attachments[v.Driver]
		if diff := cmp.Diff(facts(a.Health), facts(v.Health)); diff != "" || (v.Health.State == status.Broken) != needs(s.healths[v.Driver]) {
			t.Errorf("%s: volumes says something else than the API (-API +volumes):\n%s", v.Name, diff)
		}
		// The hub has no right on Pods: the command reads them with that of its user.
		if want := []string{"default/" + v.Name}; !slices.Equal(v.Pods, want) || len(a.Pods) != 0 {
			t.Errorf("%s: volumes names the Pods %v, want %v, the API %v, want none", v.Name, v.Pods, want, a.Pods)
		}
		first := a.Health.Reasons[0]
		if page := textOf(s.get("/attachments/" + a.Name)); !says(page, first.Fact) {
			t.Errorf("%s: the page does not say %q:\n%s", a.Name, first.Fact, page)
		}
		// explain knows more: that nobody holds the lease of an observed driver, say.
		explained, code := s.report(func(explain.Report) bool { return true }, a.Name, "--server", s.server)
		if stop := explained.Volumes[0].Stop; (code == 1) != a.Health.Needs() || stop == nil || stop.Verdict != first.Verdict {
			t.Errorf("%s: explain stops at %+v with exit code %d, the API says %s", a.Name, stop, code, first.Verdict)
		}
		fmt.Fprintf(&golden, "# VolumeAttachment %s\n%s", a.Name, explained.Text(statustable.Style{}, true))
	}
	for _, name := range s.drivers {
		va, err := s.plane.Clientset().StorageV1().VolumeAttachments().Get(s.ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		if e := va.Status.AttachError; e != nil {
			text = e.Message
		}
		fmt.Fprintf(&golden, "# attachError of %s\n%s\n", name, text)
	}
	s.compareWithGolden(golden.String())
}

// compareWithGolden compares texts with a file, without what differs from run to run.
func (s *healthScene) compareWithGolden(got string) {
	s.t.Helper()
	for _, r := range [][2]string{
		{` --kubeconfig=\S+`, ""}, // in the commands, as explain was given it
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`, "TIME"},
		{`\b\d+(h\d+m|m\d+s|[hms])\b`, "AGE"},
		{`AGE +`, "AGE "}, // a column is as wide as its ages
		// The driver's gRPC ends the call at the same deadline, and can be the first.
		{`stream terminated by RST_STREAM with error code: CANCEL`, "context deadline exceeded"},
		{regexp.QuoteMeta(s.dir), "DIR"},
		{`\b[\w.-]+_[0-9a-z]{16}\b`, "IDENTITY"},
		{`stuck: attach requested at TIME, \d+ failed tr(y|ies), last error: `, ""}, // as the first try came before or after stuckAfter
	} {
		got = regexp.MustCompile(r[0]).ReplaceAllString(got, r[1])
	}
	path := filepath.Join("testdata", "health.golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		s.t.Errorf("%s; run with -update if the new texts are right (-want +got):\n%s", path, diff)
	}
}
