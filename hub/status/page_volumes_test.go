package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// pageText returns the words of a part of a page, found by its ID, with single spaces between them.
func pageText(t *testing.T, page, id string) string {
	t.Helper()
	for _, n := range elements(t, page) {
		if attribute(n, "id") == id {
			return textOf(n)
		}
	}
	t.Fatalf("the page has no part %s", id)
	return ""
}

func textOf(n *html.Node) string {
	var words []string
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			words = append(words, strings.Fields(d.Data)...)
		}
	}
	return strings.Join(words, " ")
}

func TestEqualFailuresAreOneRow(t *testing.T) {
	now := time.Now()
	failing := func(name, driver, node, text string, op Operation) Attachment {
		why := diagnosis.Diagnosis{Verdict: diagnosis.BackendError, Fact: "answered Internal (" + name + " ago)", Detail: text}
		return Attachment{Name: name, Driver: driver, Node: node, State: Failing, Operation: op, LastError: "rpc error: code = Internal desc = " + text,
			Health: Health{State: Attention, Reasons: []Reason{{Attention, why}}}}
	}
	rows := Groups([]Attachment{
		failing("va-1", "a", "node-1", "node-1 is full", Attach), failing("va-2", "a", "node-2", "node-2 is full", Attach), failing("va-3", "a", "node-1", "array busy", Attach),
		failing("va-4", "b", "node-1", "node-1 is full", Attach), failing("va-5", "a", "node-3", "node-3 is full", Detach), failing("va-6", "a", "node-9", "node-9 is full", Attach),
	})
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprintf("%s×%d+%d", r[0].Name, len(r), otherNodes(r)))
	}
	if want := "va-1×3+2 va-3×1+0 va-4×1+0 va-5×1+0"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	_, _, body := get(t, startServer(t, newTroubledHub(now))+"/drivers/"+troubled.full)
	if text := pageText(t, body, "open"); !strings.Contains(text, "data-postgres-primary-0 ×10") || strings.Count(text, "attachment limit") != 1 {
		t.Errorf("the volumes are %s", text)
	}
	if text := pageText(t, body, "failures"); strings.Count(text, "attachment limit") != 10 {
		t.Errorf("the failures are %s", text)
	}
}

func TestWhatIsBrokenSinceWhenAndWhoWaitsIsOnTheFirstPage(t *testing.T) {
	_, _, body := get(t, startServer(t, newTroubledHub(time.Now()))+"/")
	drivers := pageText(t, body, "drivers")
	last := 0
	for _, want := range []string{
		troubled.lost + " broken for 16m Lost cannot be called at tcp://vsphere-csi.storage.svc:9443 for 16m: dial tcp 10.96.41.7:9443: connect: connection refused 9 volumes wait, the oldest for 15m: needed by claim payments-production/data-postgres-primary-0,", "4 volumes stuck, the oldest for 15m",
		troubled.hanging + " broken for 8m12s answers no call for 8m12s: needed by claim payments-production/data-postgres-primary-0,", "ControllerPublishVolume unanswered for 8m12s: 10 of 20 calls in flight", "10 in flight oldest 8m12s",
		troubled.observed + " observe attention for 11h only observed (`mode: observe` in drivers.yaml) for 11h: its lease has no holder", "1 volume waits for 4m", "and more",
		troubled.left + " attention for 60m 1 volume left attached",
		troubled.full + " attention for 5m 11 volumes failing, the oldest for 5m: ResourceExhausted: attachment limit",
		troubled.slow + " attention for 66s ControllerUnpublishVolume unanswered for 66s",
	} {
		at := strings.Index(drivers, want)
		if at < last {
			t.Errorf("%q is at %d, after %d, in %s", want, at, last, drivers)
		}
		last = max(at, last)
	}
	if !strings.Contains(drivers, "standby "+troubled.paused+" paused Paused for 11h paused by `mode: paused` in drivers.yaml") {
		t.Errorf("the paused driver is not on standby: %s", drivers)
	}
	if n := strings.Count(drivers, "needed by"); n != 3 { // once for each driver that keeps a Pod waiting
		t.Errorf("%d times it is said who waits: %s", n, drivers)
	}
	trouble := pageText(t, body, "trouble")
	for _, want := range []string{
		"payments-production/data-postgres-primary-0 ×4", "broken stuck (attach) for 15m " + troubled.lost,
		"×10", "attention attaching for 8m12s " + troubled.hanging, "ControllerPublishVolume unanswered for 8m12s: attaching the volume to node",
	} {
		if !strings.Contains(trouble, want) {
			t.Errorf("%q is not in %s", want, trouble)
		}
	}
}

func TestThePagesSayTheReasonsOfTheAPI(t *testing.T) {
	u := startServer(t, newTroubledHub(time.Now()))
	for _, d := range fetch[DriverList](t, u+"/api/v1/drivers").Drivers {
		_, _, overview := get(t, u+"/?q="+d.Name)
		_, _, page := get(t, u+"/drivers/"+d.Name)
		if text := pageText(t, page, "head"); d.Health.Needs() && !strings.Contains(text, string(d.Health.State)+" for ") {
			t.Errorf("the page of %s says %s", d.Name, text)
		}
		reasons := pageText(t, page, "diagnosis")
		for i, r := range d.Health.Reasons {
			for _, part := range append([]string{r.Fact, r.Detail}, r.Actions...) {
				if !strings.Contains(reasons, diagnosis.Clause(part)) {
					t.Errorf("the page of %s does not say %q: %s", d.Name, part, reasons)
				}
			}
			if i == 0 && !strings.Contains(pageText(t, overview, "drivers"), r.Fact) {
				t.Errorf("the row of %s does not say %q", d.Name, r.Fact)
			}
		}
	}
	for _, a := range fetch[AttachmentList](t, u+"/api/v1/attachments?health=broken,attention").Attachments {
		_, _, page := get(t, u+"/attachments/"+a.Name)
		for _, r := range a.Health.Reasons {
			fact, _, _ := strings.Cut(r.Fact, " (") // then comes the age of an error
			fact, _, _ = strings.Cut(fact, ", the next one")
			if !strings.Contains(pageText(t, page, "diagnosis"), fact) {
				t.Errorf("the page of %s does not say %q", a.Name, r.Fact)
			}
		}
	}
}

func TestEachTextIsOnceOnAPage(t *testing.T) {
	u := startServer(t, newTroubledHub(time.Now()))
	_, _, driver := get(t, u+"/drivers/"+troubled.lost)
	if n := strings.Count(driver, refused); n != 3 { // the reason, and the rows of the stuck and of the waiting volumes
		t.Errorf("the driver's page has its error %d times", n)
	}
	_, _, stuck := get(t, u+"/attachments/"+vaName(1000))
	if n := strings.Count(stuck, "error reading from server"); n != 1 {
		t.Errorf("the page of a VolumeAttachment has its last error %d times", n)
	}
}

func TestTimesSayUTCAndTheirAge(t *testing.T) {
	now := time.Date(2026, 3, 4, 3, 12, 17, 0, time.FixedZone("CET", 3600))
	for _, tt := range []struct {
		since time.Duration
		want  string
	}{{8*time.Minute + 12*time.Second, "02:04:05 UTC, 8m12s ago"}, {3 * time.Hour, "23:12:17 UTC, 3h ago"}} {
		if got := at(now.Add(-tt.since), now); got.Text != tt.want {
			t.Errorf("got %q, want %q", got.Text, tt.want)
		}
	}
	if at(time.Time{}, now) != nil {
		t.Error("a time that is not known is shown")
	}
}
