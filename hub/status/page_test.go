package status

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/csi-attach-hub/csi-attach-hub/internal/httpguard"
)

// makeHostile puts a hostile text into every text, also into names.
func makeHostile(d *Driver, a *Attachment, o *Overview) {
	for _, v := range []any{d, a, o} {
		infect(reflect.ValueOf(v).Elem())
	}
	d.State, a.State, a.Operation, a.Driver = "Ready", Stuck, Attach, d.Name
	o.Unserved = map[string]int{hostile: 3}
}

func infect(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Pointer:
		infect(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			infect(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() != reflect.TypeFor[time.Time]() {
			for i := range v.NumField() {
				infect(v.Field(i))
			}
		}
	}
}

func hostilePaths(d Driver, a Attachment) []string {
	return []string{"/", "/?q=" + url.QueryEscape("<script>"), "/drivers/" + url.PathEscape(d.Name), "/attachments", "/attachments/" + url.PathEscape(a.Name),
		"/attachments?q=" + url.QueryEscape("<script>")}
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

func TestNoTextBecomesAnElementOrAnAttribute(t *testing.T) {
	h := newFakeHub()
	driver, attachment, overview := filled[Driver](), filled[Attachment](), filled[Overview]()
	makeHostile(&driver, &attachment, &overview)
	h.change(func() {
		h.drivers[driver.Name], h.attachments[attachment.Name], h.overview = driver, attachment, overview
	})
	u := startServer(t, h)
	for _, path := range append(hostilePaths(driver, attachment), "/drivers/"+url.PathEscape("<script>"), "/attachments?state="+url.QueryEscape(hostile)) {
		_, header, body := get(t, u+path)
		if header.Get("Content-Security-Policy") != httpguard.Policy || header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: %v", path, header)
		}
		checkElements(t, path, body)
	}
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
	h := newBusyHub(30, 300)
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
	for _, want := range []string{"/drivers/odd%2fname%3fx=1%23y%25", "/attachments/" + vaName(1)} {
		found := false
		for path := range seen {
			found = found || strings.EqualFold(path, want)
		}
		if !found {
			t.Errorf("nothing leads to %s", want)
		}
	}
}

func TestTheBrokenDriverComesFirst(t *testing.T) {
	h := newBusyHub(100, 0)
	_, _, body := get(t, startServer(t, h)+"/")
	var order []string
	for _, n := range elements(t, body) {
		if n.Data == "tr" && strings.HasPrefix(attribute(n, "class"), "row-") {
			order = append(order, strings.TrimPrefix(attribute(n, "class"), "row-"))
		}
	}
	if got := strings.Join(order[:6], " "); len(order) != 100 || got != "broken attention attention attention standby standby" {
		t.Errorf("%d rows, beginning with %s", len(order), got)
	}
}

func TestWhatIsUnknownIsSaidOnAPage(t *testing.T) {
	u := startServer(t, newBusyHub(2, 2))
	for path, want := range map[string]int{"/drivers/none": http.StatusNotFound, "/attachments/none": http.StatusNotFound, "/attachments?state=none": http.StatusBadRequest, "/attachments?health=none": http.StatusBadRequest} {
		code, header, body := get(t, u+path)
		if code != want || !strings.HasPrefix(header.Get("Content-Type"), "text/html") || !strings.Contains(body, "&#34;none&#34;") {
			t.Errorf("%s: got %d %s", path, code, body)
		}
	}
}

func TestABadReloadIsSeenFirst(t *testing.T) {
	h := newBusyHub(5, 5)
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
	h := newBusyHub(5, 100)
	for name, a := range h.attachments {
		a.State, a.LastError = Failing, strings.Repeat("x", 1<<20)
		h.attachments[name] = a
	}
	u := startServer(t, h)
	for _, path := range []string{"/", "/attachments", "/attachments/" + vaName(1)} {
		if _, _, body := get(t, u+path); len(body) > 200<<10 || !strings.Contains(body, "more bytes)") {
			t.Errorf("%s has %d bytes", path, len(body))
		}
	}
}

func TestPagesStaySmallWithManyDriversAndVolumeAttachments(t *testing.T) {
	h := newBusyHub(100, 10000)
	u := startServer(t, h)
	for path, most := range map[string]int{"/": 400 << 10, "/attachments": 150 << 10, "/drivers/" + busyName(1): 80 << 10, "/attachments/" + vaName(1): 20 << 10} {
		begun := time.Now()
		code, _, body := get(t, u+path)
		t.Logf("%s: %d bytes in %s", path, len(body), time.Since(begun))
		if code != http.StatusOK || len(body) > most {
			t.Errorf("%s: %d, %d bytes, want at most %d", path, code, len(body), most)
		}
	}
}

func BenchmarkPages(b *testing.B) {
	h := newBusyHub(100, 10000)
	handler := newHandler(Options{Source: h, Metrics: h.metrics, Probes: h.health})
	for name, path := range map[string]string{"overview": "/", "list": "/attachments", "driver": "/drivers/" + busyName(1), "attachment": "/attachments/" + vaName(1)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				w := &discard{header: http.Header{}}
				r, _ := http.NewRequestWithContext(toLoopback(b.Context()), http.MethodGet, "http://localhost"+path, nil)
				handler.ServeHTTP(w, r)
				b.ReportMetric(float64(w.size), "bytes")
			}
		})
	}
}

// discard counts what is answered.
type discard struct {
	header http.Header
	size   int
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(int)     {}
func (d *discard) Write(p []byte) (int, error) {
	d.size += len(p)
	return len(p), nil
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

func TestPagesAreOnlyRead(t *testing.T) {
	u := startServer(t, newBusyHub(2, 2))
	for _, path := range []string{"/", "/attachments", "/drivers/" + busyName(0), "/assets/page.js"} {
		if code, _, _ := request(t, http.MethodPost, u+path); code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: got %d", path, code)
		}
		if code, _, body := request(t, http.MethodHead, u+path); code != http.StatusOK || body != "" {
			t.Errorf("HEAD %s: got %d %s", path, code, fmt.Sprintf("%.40s", body))
		}
	}
}
