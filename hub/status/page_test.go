package status

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// newHostileHub returns a hub of which every text, also every name, is this one, and the paths of its pages.
func newHostileHub(text string) (*fakeHub, []string) {
	driver, attachment, overview := filled[Driver](), filled[Attachment](), filled[Overview]()
	for _, v := range []any{&driver, &attachment, &overview} {
		set(reflect.ValueOf(v).Elem(), text)
	}
	driver.State, attachment.State, attachment.Operation = "Ready", Stuck, Attach
	overview.Unserved = map[string]int{text: 3}
	h := newFakeHub()
	h.engage(text).Call(text, 13, 0)
	h.change(func() { h.drivers[text], h.attachments[text], h.overview = driver, attachment, overview })
	at, query := url.PathEscape(text), url.QueryEscape(text)
	return h, []string{"/", "/?q=" + query, "/drivers/" + at, "/attachments", "/attachments/" + at, "/attachments?q=" + query}
}

// set puts a text into every text.
func set(v reflect.Value, text string) {
	switch {
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Pointer:
		set(v.Elem(), text)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			set(v.Index(i), text)
		}
	case v.Kind() == reflect.Struct && v.Type().PkgPath() != "time":
		for i := range v.NumField() {
			set(v.Field(i), text)
		}
	}
}

// elements returns all elements of a page.
func elements(t *testing.T, page string) []*html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var all []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			all = append(all, n)
		}
	}
	return all
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// checkElements checks that a page has no element and no attribute that came out of a text.
func checkElements(t *testing.T, path, body string) {
	t.Helper()
	for _, n := range elements(t, body) {
		switch n.Data {
		case "script":
			if attribute(n, "src") != "/assets/page.js" || n.FirstChild != nil {
				t.Errorf("%s: a script of somebody else", path)
			}
		case "img", "iframe", "object", "style", "base":
			t.Errorf("%s: there is an element %s", path, n.Data)
		}
		if n.FirstChild != nil && attribute(n, "class") == "reason" && strings.ContainsRune(n.FirstChild.Data, '\u202e') {
			t.Errorf("%s: an error turns the text around", path)
		}
		for _, a := range n.Attr {
			href := a.Key == "href" && n.Data != "link" && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#")
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || href {
				t.Errorf("%s: <%s %s=%q>", path, n.Data, a.Key, a.Val)
			}
		}
	}
}

func TestEveryLinkOfThePagesLeadsSomewhere(t *testing.T) {
	h := newHub(2, 8)
	h.drivers["odd/name?x=1#y%"] = Driver{Name: "odd/name?x=1#y%", State: "Ready", Up: true, Mode: "active"}
	u := startServer(t, h)
	seen, queue := map[string]bool{"/": true}, []string{"/"}
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		code, header, body := get(t, u+path)
		if code != http.StatusOK {
			t.Errorf("%s: got %d %s", path, code, body)
		}
		if !strings.HasPrefix(header.Get("Content-Type"), "text/html") {
			continue
		}
		for _, n := range elements(t, body) {
			href, _, _ := strings.Cut(attribute(n, "href"), "#")
			if href != "" && !seen[href] && len(seen) < 400 {
				seen[href] = true
				queue = append(queue, href)
			}
		}
	}
	for _, want := range []string{"/drivers/odd%2fname%3fx=1%23y%25", "/attachments/" + vaName(1000)} {
		found := false
		for path := range seen {
			found = found || strings.EqualFold(path, want)
		}
		if !found {
			t.Errorf("nothing leads to %s", want)
		}
	}
}

func TestWhatIsUnknownIsSaidOnAPage(t *testing.T) {
	u := startServer(t, newFakeHub())
	for path, want := range map[string]int{"/drivers/none": http.StatusNotFound, "/attachments/none": http.StatusNotFound, "/attachments?state=none": http.StatusBadRequest, "/attachments?health=none": http.StatusBadRequest} {
		code, header, body := get(t, u+path)
		if code != want || !strings.HasPrefix(header.Get("Content-Type"), "text/html") || !strings.Contains(body, "&#34;none&#34;") {
			t.Errorf("%s: got %d %s", path, code, body)
		}
	}
}

func TestABadReloadIsSeenFirst(t *testing.T) {
	h := newHub(5, 5, troubled.lost)
	h.overview.Config.Errors = []string{"a.yaml:14: drivers[1].tls.caFile: no such file"}
	h.overview.Config.Files = []ConfigFile{{Path: "a.yaml", Rejected: "a.yaml rejected; the other files apply"}, {Path: "b.yaml"}}
	_, _, body := get(t, startServer(t, h)+"/")
	for _, text := range []string{"<strong>a.yaml rejected; the other files apply.</strong>", "drivers[1].tls.caFile"} {
		if at, table := strings.Index(body, text), strings.Index(body, "<table"); at < 0 || at > table {
			t.Errorf("%q is at %d, the first table at %d", text, at, table)
		}
	}
}

// An error is shown up to a length: a driver that answers with a megabyte for each
// volume must not make a page of gigabytes.
func TestLongErrorsAreCut(t *testing.T) {
	h, long := newHub(5, 100), strings.Repeat("x", 1<<20)
	for name, a := range h.attachments {
		a.State, a.LastError = Failing, long
		h.attachments[name] = a
	}
	u := startServer(t, h)
	for _, path := range []string{"/", "/attachments", "/attachments/" + vaName(1000)} {
		if _, _, body := get(t, u+path); len(body) > 200<<10 || !strings.Contains(body, "more bytes)") {
			t.Errorf("%s has %d bytes", path, len(body))
		}
	}
}

func TestPagesStaySmallWithManyDriversAndVolumeAttachments(t *testing.T) {
	u := startServer(t, newHub(100, 10000))
	for _, page := range []struct {
		path string
		most int
		says string
	}{
		{"/", 400 << 10, ""},
		{"/attachments", 150 << 10, "100 of 10,056, worst first; search to see others<"},
		{"/attachments?state=unserved", 20 << 10, "2 of 2, worst first<"},
		{"/drivers/" + wellName(1), 80 << 10, ""},
		{"/attachments/" + vaName(1000), 20 << 10, ""},
	} {
		if code, _, body := get(t, u+page.path); code != http.StatusOK || len(body) > page.most || !strings.Contains(body, page.says) {
			t.Errorf("%s: %d, %d bytes, want at most %d with %q", page.path, code, len(body), page.most, page.says)
		}
	}
}

func TestOnlyAssetsAreServedAsFiles(t *testing.T) {
	u := startServer(t, newFakeHub())
	for name, kind := range map[string]string{"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		if code, header, body := get(t, u+"/assets/"+name); code != http.StatusOK || header.Get("Content-Type") != kind || body == "" {
			t.Errorf("%s: got %d %v", name, code, header)
		}
	}
	for _, name := range []string{"overview.html", "", "..", "none.js"} {
		if code, _, body := get(t, u+"/assets/"+name); code == http.StatusOK && strings.Contains(body, "{{") || name != ".." && code != http.StatusNotFound {
			t.Errorf("%q is served: %d %.80s", name, code, body)
		}
	}
}
