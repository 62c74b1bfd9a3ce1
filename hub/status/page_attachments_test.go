package status

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestTheListIsFiltered(t *testing.T) {
	u := startServer(t, newHub(2, 100))
	total := regexp.MustCompile(`of ([0-9,]+), worst first`)
	for query, want := range map[string]string{
		"":                                    "156",
		"driver=" + wellName(1):               "50",
		"state=unserved":                      "2",
		"state=stuck,failing":                 "15",
		"health=broken":                       "6",
		"health=broken,attention":             "34",
		"q=postgres-primary-3":                "5",
		"q=unavailable+eof":                   "4",
		"node=worker-1":                       "3",
		"q=RESOURCEexhausted+" + vaName(4002): "1",
		"q=RESOURCEexhausted&state=attached":  "none",
		"q=unserved":                          "2",
		"q=stuck+" + troubled.lost:            "4",
		"driver=" + troubled.lost + "&q=lost": "9",
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
