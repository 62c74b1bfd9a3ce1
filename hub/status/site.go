package status

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/httpguard"
)

// maxRenderings is how many answers (pages and JSON) are rendered at once. Further requests wait: refreshing browsers
// must not take processor and memory from the hub's work.
const maxRenderings = 4

var (
	//go:embed page/*.html
	pageTemplates embed.FS
	// assets are what the templates refer to.
	//go:embed page/page.css page/page.js page/icon.svg
	assets embed.FS
)

// site answers with what the source says: pages for people, JSON for programs.
type site struct {
	Options
	rendering *semaphore.Weighted
	pages     *template.Template
}

func newSite(o Options) *site {
	return &site{o, semaphore.NewWeighted(maxRenderings), template.Must(template.New("").Funcs(template.FuncMap{
		"count":      count,
		"plural":     plural,
		"short":      func(text string) string { return sanitize(text, shortText) },
		"long":       func(text string) string { return sanitize(text, longText) },
		"segment":    url.PathEscape,
		"otherNodes": otherNodes,
		"asHTML":     asHTML,
		"statusText": http.StatusText,
		"line":       func(d diagnosis.Diagnosis, of string) string { return d.Line(of, time.Now()) },
		"age":        func(t time.Time) *moment { return momentOf(t, diagnosis.Length(time.Since(t))) },
		"until":      func(t time.Time) *moment { return momentOf(t, diagnosis.Length(time.Until(t))) },
		"at":         func(t time.Time) *moment { return momentOf(t, diagnosis.Ago(t, time.Now())) },
		"spark":      func(driver string) *spark { return o.Metrics.spark(driver, time.Now()) },
	}).ParseFS(pageTemplates, "page/*.html"))}
}

func (s *site) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", s.page("overview.html", s.overview))
	mux.HandleFunc("/drivers/{name}", s.page("driver.html", s.driverPage))
	mux.HandleFunc("/attachments", s.page("attachments.html", s.attachments))
	mux.HandleFunc("/attachments/{name}", s.page("attachment.html", s.attachment))
	mux.HandleFunc("/assets/{name}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, assets, "page/"+r.PathValue("name"))
	})
	mux.HandleFunc("/api/v1/overview", s.api(func(v view, _ *http.Request) (any, *failure) { return v.Overview, nil }))
	mux.HandleFunc("/api/v1/drivers", s.api(func(v view, _ *http.Request) (any, *failure) { return DriverList{v.drivers}, nil }))
	mux.HandleFunc("/api/v1/drivers/{name}", s.api(s.driver))
	mux.HandleFunc("/api/v1/attachments", s.api(s.attachmentList))
	return mux
}

// finder returns what a request asks for.
type finder func(view, *http.Request) (any, *failure)

// api answers with JSON.
func (s *site) api(find finder) http.HandlerFunc {
	return s.serve("application/json", func(r *http.Request, body *bytes.Buffer) (int, error) {
		data, failed := find(look(s.Source), r)
		if failed != nil {
			return failed.Code, json.NewEncoder(body).Encode(failed)
		}
		return http.StatusOK, json.NewEncoder(body).Encode(data)
	})
}

// page is what all templates of pages get.
type page struct {
	view
	Here, Metrics string // paths of the page and of the metrics
	Data          any    // of this page
}

// page answers with a page.
func (s *site) page(name string, find finder) http.HandlerFunc {
	return s.serve("text/html; charset=utf-8", func(r *http.Request, body *bytes.Buffer) (int, error) {
		p := page{view: look(s.Source), Here: r.URL.Path, Metrics: s.MetricsPath}
		data, failed := find(p.view, r)
		if failed != nil {
			p.Data = failed
			return failed.Code, s.pages.ExecuteTemplate(body, "error.html", p)
		}
		p.Data = data
		return http.StatusOK, s.pages.ExecuteTemplate(body, name, p)
	})
}

// serve renders the whole answer before it sends anything: readers would take half a page for a whole one, and a slow
// reader must delay no other.
func (s *site) serve(contentType string, render func(*http.Request, *bytes.Buffer) (int, error)) http.HandlerFunc {
	limited := func(r *http.Request, body *bytes.Buffer) (code int, err error) {
		if err := s.rendering.Acquire(r.Context(), 1); err != nil {
			return 0, err // the client has left
		}
		defer s.rendering.Release(1)
		return render(r, body)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		code, err := limited(r, &body)
		if err != nil {
			httpguard.Reject(w, failure{Code: http.StatusInternalServerError, Text: err.Error()})
			return
		}
		w.Header().Set("Content-Type", contentType)
		var out io.Writer = w
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			// Compression leaves a tenth of a page. This counts, because browsers reload pages all the time,
			// mostly through kubectl port-forward.
			w.Header().Set("Content-Encoding", "gzip")
			packer, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // a valid level
			defer packer.Close()
			out = packer
		}
		w.WriteHeader(code)
		// A path or a query may hold any bytes. The client may have left.
		_, _ = out.Write(bytes.ToValidUTF8(body.Bytes(), []byte("\uFFFD")))
	}
}

// moment is a time with a text about it.
type moment struct {
	Time time.Time
	Text string
}

// momentOf returns nil for the zero time, which pages leave out.
func momentOf(t time.Time, text string) *moment {
	if t.IsZero() {
		return nil
	}
	return &moment{t.UTC(), text}
}

// unbroken are the parts of a text that asHTML marks: what is in backquotes, and names in which a browser would break a line.
var unbroken = regexp.MustCompile("`[^`\n]+`|[^\\s`]*[-/][^\\s`]*")

// asHTML returns a text as HTML. A name in it breaks only if it is wider than its place, then after a slash or a dot. What is in backquotes
// is code.
func asHTML(text string) template.HTML {
	out, rest := "", 0
	whole := func(html string) string { return `<span class="w">` + html + `</span>` }
	for _, at := range unbroken.FindAllStringIndex(text, -1) {
		name := text[at[0]:at[1]]
		out += template.HTMLEscapeString(text[rest:at[0]])
		if rest = at[1]; name[0] == '`' {
			out += "<code>" + template.HTMLEscapeString(strings.Trim(name, "`")) + "</code>"
			continue
		}
		separator, parts := "/", ""
		if !strings.Contains(name, separator) {
			separator = "."
		}
		for part := range strings.SplitAfterSeq(name, separator) {
			parts += whole(template.HTMLEscapeString(part))
		}
		out += whole(parts)
	}
	return template.HTML(out + template.HTMLEscapeString(text[rest:]))
}
