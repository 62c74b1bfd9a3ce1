package status

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Whatever text stands in any name and any error, pages have no element that came out of
// it, the API answers with JSON, and the metrics can be scraped.
func FuzzTexts(f *testing.F) {
	for _, text := range []string{hostile, "", ".", "..", "a/../b", "</textarea><plaintext>", "javascript:alert(1)//", "\xff\x00\u2028\r\n", "{{.}}${x}`", "a,b=\"c\"\n# HELP", "//example.com"} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		driver, attachment, overview := filled[Driver](), filled[Attachment](), filled[Overview]()
		for _, v := range []any{&driver, &attachment, &overview} {
			set(reflect.ValueOf(v).Elem(), text)
		}
		driver.Name, driver.State, attachment.Name, attachment.Driver, attachment.State, attachment.Operation = name, "Ready", name, name, Stuck, Attach
		overview.Unserved = map[string]int{text: 3}
		h := newFakeHub()
		h.engage(name).Call(text, 13, 0)
		h.change(func() {
			h.drivers[name], h.attachments[name], h.overview = driver, attachment, overview
		})
		handler := newHandler(Options{Source: h, Metrics: h.metrics, Probes: h.health})
		at, query := url.PathEscape(name), url.QueryEscape(text)
		for _, path := range []string{"/", "/?q=" + query, "/drivers/" + at, "/attachments", "/attachments/" + at, "/attachments?q=" + query + "&state=" + query,
			"/api/v1/drivers", "/api/v1/drivers/" + at, "/api/v1/attachments", "/api/v1/attachments?driver=" + query + "&state=" + query, "/metrics", "/readyz?verbose"} {
			r, err := http.NewRequestWithContext(toLoopback(t.Context()), http.MethodGet, "http://localhost"+path, nil)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			body := w.Body.String()
			if w.Code >= 500 || !utf8.ValidString(body) {
				t.Errorf("%s: %d, %.300q", path, w.Code, body)
			}
			switch kind := w.Header().Get("Content-Type"); {
			case strings.HasPrefix(kind, "text/html") && w.Code == http.StatusOK:
				checkElements(t, path, body)
			case kind == "application/json" && !json.Valid(w.Body.Bytes()):
				t.Errorf("%s: no JSON: %.300q", path, body)
			case path == "/metrics":
				parser := expfmt.NewTextParser(model.UTF8Validation)
				if _, err := parser.TextToMetricFamilies(strings.NewReader(body)); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		}
	})
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

// What is shown of a text is bounded, in UTF-8, and without what hides the text beside it.
func FuzzClean(f *testing.F) {
	f.Add("bell\a \u202eback \xff", 7)
	f.Add(strings.Repeat("ü", 40), 33)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = 1 + (limit&0xffff+0x10000)&0xffff
		// Each byte that is no UTF-8 may become one of three.
		if got := sanitize(text, limit); len(got) > 3*limit+40 || !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\x1b\r\u202e\u2066") {
			t.Errorf("%q, cut to %d, is %q", text, limit, got)
		}
		if got := label(text); len(got) > longestLabel || !utf8.ValidString(got) {
			t.Errorf("%q as a label is %q", text, got)
		}
	})
}
