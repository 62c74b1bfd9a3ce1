package status

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
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
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, paths := newHostileHub(text)
		handler := newHandler(Options{Source: h, Metrics: h.metrics, Probes: h.health})
		at, query := url.PathEscape(text), url.QueryEscape(text)
		for _, path := range append(paths, "/drivers/none"+at, "/attachments?state="+query,
			"/api/v1/drivers", "/api/v1/drivers/"+at, "/api/v1/drivers/none"+at, "/api/v1/attachments", "/api/v1/attachments?driver="+query+"&state="+query, "/metrics", "/readyz?verbose") {
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
			case strings.HasPrefix(kind, "text/html") && w.Code != http.StatusMovedPermanently && w.Code != http.StatusTemporaryRedirect:
				checkElements(t, path, body)
			case kind == "application/json" && (!json.Valid(w.Body.Bytes()) || strings.ContainsAny(body, "<>\u2028")):
				t.Errorf("%s: no JSON, or not escaped: %.300q", path, body)
			case path == "/metrics":
				parser := expfmt.NewTextParser(model.UTF8Validation)
				if _, err := parser.TextToMetricFamilies(strings.NewReader(body)); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		}
	})
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
