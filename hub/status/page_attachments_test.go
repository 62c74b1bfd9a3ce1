package status

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestTheListIsFiltered(t *testing.T) {
	h := newBusyHub(10, 500)
	u := startServer(t, h)
	total := regexp.MustCompile(`of ([0-9,]+), worst first`)
	for query, want := range map[string]string{
		"":                                   "512",
		"driver=" + busyName(1):              "50",
		"state=unserved":                     "12",
		"state=stuck,failing":                "9",
		"health=broken":                      "7",
		"health=broken,attention":            "22",
		"q=team-1/data-db-498":               "1",
		"q=unavailable+refused":              "7",
		"node=worker-1":                      "15",
		"q=RESOURCEexhausted+worker-17":      "2",
		"q=RESOURCEexhausted&state=attached": "none",
		"q=unserved":                         "12",
		"q=stuck+" + busyName(1):             "7",
		"driver=" + busyName(1) + "&q=lost":  "20",
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

func TestALongListSaysThatItIsCut(t *testing.T) {
	u := startServer(t, newBusyHub(10, 345))
	for query, want := range map[string]string{"": "100 of 357, worst first; search to see others<", "?state=unserved": "12 of 12, worst first<"} {
		_, _, body := get(t, u+"/attachments"+query)
		if !strings.Contains(body, want) {
			t.Errorf("%s: want %s", query, want)
		}
	}
}
