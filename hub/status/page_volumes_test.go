package status

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

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
	text := ""
	for d := range n.Descendants() {
		if d.Type != html.TextNode {
			continue
		}
		if d.Parent.Data != "code" && (attribute(d.Parent, "class") != "w" || d.Parent.PrevSibling == nil) { // else it is the rest of a name
			text += " "
		}
		text += d.Data
	}
	return strings.Join(strings.Fields(text), " ")
}

func TestEqualFailuresAreOneRow(t *testing.T) {
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
	heldBy := func(name, finalizer string) Attachment {
		a := Attachment{Name: name, Driver: "d", Node: "n", PersistentVolume: "pv-" + name, State: Waiting, Operation: Detach}
		a.Fault = a.says(diagnosis.FinalizerOfAnother, "held by a foreign finalizer")
		a.Fault.Detail = finalizer
		a.Health = HealthOfAttachment(DiagnosisInput{Attachment: a})
		return a
	}
	if groups := Groups([]Attachment{heldBy("csi-1", "x"), heldBy("csi-2", "x"), heldBy("csi-3", "y")}); len(groups) != 2 || len(groups[0]) != 2 {
		t.Errorf("got %+v, want that the text of a group is true for all", groups)
	}
	h := newHub(0, 0)
	h.setDriver(troubled.full, func(d *Driver) {
		d.Failures = append(d.Failures, Failure{VolumeAttachment: "gone", Text: "array busy"})
	})
	_, _, body := get(t, startServer(t, h)+"/drivers/"+troubled.full)
	if text := pageText(t, body, "open"); !strings.Contains(text, "data-postgres-primary-0 ×10") || strings.Count(text, "attachment limit") != 1 {
		t.Errorf("the volumes are %s", text)
	}
	if text := pageText(t, body, "failures"); strings.Contains(text, "attachment limit") || !strings.Contains(text, "array busy") {
		t.Errorf("the failures are %s", text)
	}
}

func TestWhatIsBrokenAndSinceWhenIsOnTheFirstPage(t *testing.T) {
	_, _, body := get(t, startServer(t, newHub(0, 0))+"/")
	body = regexp.MustCompile(`(\d+m)\d+s`).ReplaceAllString(body, "$1") // ages without their seconds: some pass before the page is made
	drivers := pageText(t, body, "drivers")
	last := 0
	for _, want := range []string{
		troubled.lost + " broken Lost cannot be called at tcp://vsphere-csi.storage.svc:9443 for 16m: dial tcp 10.96.41.7:9443: connect: connection refused; its lease has no holder 5 volumes wait", "4 volumes stuck, the oldest for 15m",
		troubled.hanging + " broken answers no call for 8m: 10 of 20 calls in flight",
		troubled.observed + " attention only observed for 11h: mode: observe in drivers.yaml; its lease has no holder", "1 volume waits for 4m", "and more",
		troubled.left + " attention 2 volumes dangling, the oldest for 60m",
		troubled.full + " attention 11 volumes failing, the oldest for 5m: last error: ResourceExhausted: attachment limit",
		troubled.slow + " attention ControllerUnpublishVolume unanswered for ", // some seconds
	} {
		at := strings.Index(drivers, want)
		if at < last {
			t.Errorf("%q is at %d, after %d, in %s", want, at, last, drivers)
		}
		last = max(at, last)
	}
	if !strings.Contains(drivers, "standby "+troubled.paused+" Paused paused for 11h: mode: paused in drivers.yaml") {
		t.Errorf("the paused driver is not on standby: %s", drivers)
	}
	trouble := pageText(t, body, "trouble")
	for _, want := range []string{
		"payments-production/data-postgres-primary-0 ×4", "broken stuck attach for 15m " + troubled.lost,
		"×10", "attention attaching for 8m " + troubled.hanging, "ControllerPublishVolume unanswered for 8m",
	} {
		if !strings.Contains(trouble, want) {
			t.Errorf("%q is not in %s", want, trouble)
		}
	}
}

func TestThePagesSayTheReasonsOfTheAPI(t *testing.T) {
	u := startServer(t, newHub(0, 0))
	for _, d := range fetch[DriverList](t, u+"/api/v1/drivers").Drivers {
		_, _, overview := get(t, u+"/?q="+d.Name)
		_, _, page := get(t, u+"/drivers/"+d.Name)
		if text := pageText(t, page, "head"); d.Health.Needs() && !strings.Contains(text, string(d.Health.State)) {
			t.Errorf("the page of %s says %s", d.Name, text)
		}
		reasons := pageText(t, page, "diagnosis")
		for i, r := range d.Health.Reasons {
			for _, part := range append([]string{r.Fact, r.Detail}, r.Actions...) {
				if !strings.Contains(reasons, strings.ReplaceAll(diagnosis.Clause(part), "`", "")) {
					t.Errorf("the page of %s does not say %q: %s", d.Name, part, reasons)
				}
			}
			if i == 0 && !strings.Contains(pageText(t, overview, "drivers"), strings.ReplaceAll(r.Fact, "`", "")) {
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
	u := startServer(t, newHub(0, 0))
	_, _, driver := get(t, u+"/drivers/"+troubled.lost)
	if n := strings.Count(driver, refused); n != 1 {
		t.Errorf("the driver's page has its error %d times", n)
	}
	_, _, stuck := get(t, u+"/attachments/"+vaName(1000))
	if n := strings.Count(stuck, "error reading from server"); n != 1 {
		t.Errorf("the page of a VolumeAttachment has its last error %d times", n)
	}
}

func TestATextBreaksInNoNameAndShowsNoBackquotes(t *testing.T) {
	for text, want := range map[string]string{
		"is full":                 "is full",
		"by `mode: <b>` in":       "by <code>mode: &lt;b&gt;</code> in",
		"a lone ` stays":          "a lone ` stays",
		"node-1 < a.example.com":  `<span class="w"><span class="w">node-1</span></span> &lt; a.example.com`,
		"claim shop/data-0, node": `claim <span class="w"><span class="w">shop/</span><span class="w">data-0,</span></span> node`,
		"ip-10.internal":          `<span class="w"><span class="w">ip-10.</span><span class="w">internal</span></span>`,
	} {
		if got := string(asHTML(text)); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestStuckVolumesAreRedAndAttachedOnesWithAFaultAreListed(t *testing.T) {
	h := newHub(0, 0)
	h.change(func() {
		a := h.attachments[vaName(9000)]
		a.Fault = diagnosis.New(diagnosis.VolumeMissing, "PersistentVolume pv", "gone", "")
		h.attachments[a.Name] = a
	})
	u := startServer(t, h)
	for _, path := range []string{"/", "/drivers/" + troubled.lost} {
		if _, _, body := get(t, u+path); strings.Count(body, ` bad">`) == 0 {
			t.Errorf("nothing is red on %s", path)
		}
	}
	_, _, body := get(t, u+"/drivers/"+troubled.fine)
	if text := pageText(t, body, "open"); !strings.Contains(text, "1 of 20, worst first") || !strings.Contains(text, "PersistentVolume gone") {
		t.Errorf("the volumes are %s", text)
	}
	if strings.Contains(body, ` bad">`) {
		t.Error("a driver without stuck volumes is red")
	}
}
