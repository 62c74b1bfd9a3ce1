package status

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPagesOfTheListShowEachVolumeAttachmentOnce(t *testing.T) {
	h := newBusyHub(10, 345)
	u := startServer(t, h)
	seen := map[string]int{}
	pages, path := 0, "/attachments"
	for path != "" {
		_, _, body := get(t, u+path)
		path = ""
		pages++
		for _, n := range elements(t, body) {
			if name, found := strings.CutPrefix(attribute(n, "href"), "/attachments/"); n.Data == "a" && found {
				seen[name]++
			}
			if n.Data == "a" && attribute(n, "rel") == "next" {
				path = attribute(n, "href")
			}
		}
	}
	if len(seen) != 357 || pages != 4 {
		t.Errorf("%d on %d pages, want 357 on 4", len(seen), pages)
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s is there %d times", name, n)
		}
	}
}

func TestTheListIsFiltered(t *testing.T) {
	h := newBusyHub(10, 500)
	u := startServer(t, h)
	total := regexp.MustCompile(`of ([0-9,]+), worst first`)
	for query, want := range map[string]string{
		"":                                   "512",
		"driver=" + busyName(1):              "50",
		"state=unclaimed":                    "12",
		"state=stuck,failing":                "9",
		"health=broken":                      "7",
		"health=broken,attention&state=open": "22",
		"q=team-1/data-db-498":               "1",
		"q=unavailable+refused":              "7",
		"node=worker-1":                      "15",
		"q=RESOURCEexhausted+worker-17":      "2",
		"q=RESOURCEexhausted&state=attached": "none",
		"driver=" + busyName(1) + "&state=open&q=lost": "20",
	} {
		_, _, body := get(t, u+"/attachments?"+query)
		got := "none"
		if m := total.FindStringSubmatch(body); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
}

// Between two pages one VolumeAttachment recovers, another one fails and a third one comes.
func TestPagesOfTheListHoldWhileVolumeAttachmentsComeAndGo(t *testing.T) {
	h := newBusyHub(10, 345)
	u := startServer(t, h)
	rows := func(path string) (names []string, next string) {
		_, _, body := get(t, u+path)
		for _, n := range elements(t, body) {
			if name, found := strings.CutPrefix(attribute(n, "href"), "/attachments/"); n.Data == "a" && found {
				names = append(names, name)
			}
			if n.Data == "a" && attribute(n, "rel") == "next" {
				next = attribute(n, "href")
			}
		}
		return names, next
	}
	first, next := rows("/attachments")
	before, _ := rows(next)
	h.change(func() {
		recovered := h.attachments[first[0]]
		recovered.State, recovered.Operation = Attached, ""
		h.attachments[recovered.Name] = recovered
		failed := h.attachments[vaName(300)]
		failed.State, failed.Operation, failed.Since = Failing, Attach, time.Now()
		h.attachments[failed.Name] = failed
		h.attachments["new"] = Attachment{Name: "new", Driver: busyName(0), State: Failing, Operation: Attach, Since: time.Now()}
	})
	after, _ := rows(next)
	stayed := func(name string) bool { return name != first[0] && name != vaName(300) }
	for _, name := range before {
		if stayed(name) && !slices.Contains(after, name) && name != before[len(before)-1] {
			t.Errorf("%s was on the second page and is no more", name)
		}
	}
	for _, name := range after[:len(after)-2] {
		if stayed(name) && !slices.Contains(before, name) {
			t.Errorf("%s was not on the second page and is there now", name)
		}
	}
}

func TestTheListIsWorstFirst(t *testing.T) {
	now := time.Now()
	h := newFakeHub()
	h.engage("a.example.com")
	for name, a := range map[string]Attachment{
		"z1-stuck-longest": {State: Stuck, Since: now.Add(-time.Hour)}, "y2-stuck": {State: Stuck, Since: now.Add(-20 * time.Minute)},
		"x3-unanswered": {State: Attaching, Since: now.Add(-9 * time.Minute)}, "w4-failing": {State: Failing, Since: now.Add(-3 * time.Second)},
		"v5-attaching": {State: Attaching, Since: now.Add(-2 * time.Second)}, "u6-waiting": {State: Waiting},
		"a7-attached": {State: Attached, Since: now.Add(-90 * time.Hour)}, "b8-attached-earlier": {State: Attached, Since: now.Add(-99 * time.Hour)},
	} {
		a.Name, a.Driver = name, "a.example.com"
		h.attachments[name] = a
	}
	_, _, body := get(t, startServer(t, h)+"/attachments")
	var order []string
	for _, n := range elements(t, body) {
		if name, found := strings.CutPrefix(attribute(n, "href"), "/attachments/"); n.Data == "a" && found {
			order = append(order, name[1:2])
		}
	}
	if got := strings.Join(order, ""); got != "12345678" {
		t.Errorf("the order is %s", got)
	}
}

func TestAPositionIsReadBackAndNonsenseIsTheBeginning(t *testing.T) {
	p := position{2, 1700000000123456789, "csi-1.with.dots"}
	if got := parsePosition(p.String()); got != p {
		t.Errorf("got %v, want %v", got, p)
	}
	u := startServer(t, newBusyHub(3, 3))
	for _, text := range []string{"", "csi-1", "..", "x.1.a", "1.x.a", "9999999999999999999999.1.a"} {
		if got := parsePosition(text); got.compare(position{}) >= 0 {
			t.Errorf("%q: got %v", text, got)
		}
		if code, _, body := get(t, u+"/attachments?after="+text); code != http.StatusOK || !strings.Contains(body, "1–15 of 15") {
			t.Errorf("%q: got %d", text, code)
		}
	}
}
