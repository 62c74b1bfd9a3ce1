package status

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// pageFiles are the templates, and the files that they refer to.
//
//go:embed page
var pageFiles embed.FS

// pagePolicy lets a page load only the hub's own files. No inline script or style runs, even if
// one passes the escaping of the templates.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

var pageTemplates = template.Must(template.New("").Funcs(template.FuncMap{
	"count":    count,
	"total":    func(n uint64) string { return count(int(n)) },
	"plural":   plural,
	"duration": duration,
	"short":    func(text string) string { return sanitize(text, shortText) },
	"long":     func(text string) string { return sanitize(text, longText) },
	"driver":   func(name string) string { return "/drivers/" + url.PathEscape(name) },
	"va":       func(name string) string { return "/attachments/" + url.PathEscape(name) },
	"list":     attachmentsURL,
	"finding":  func(d diagnosis.Diagnosis, now time.Time, of string) string { return d.Line(of, now) },
	"join":     func(words []string) string { return strings.Join(words, ", ") },
}).ParseFS(pageFiles, "page/*.html"))

// pages are the status page and the pages below it.
type pages struct {
	hub         view
	metrics     *Metrics
	metricsPath string
	limiter     limiter
}

func (p *pages) register(mux *http.ServeMux) {
	mux.HandleFunc("/{$}", p.serve(p.overview))
	mux.HandleFunc("/drivers/{name}", p.serve(p.driver))
	mux.HandleFunc("/attachments", p.serve(p.attachments))
	mux.HandleFunc("/attachments/{name}", p.serve(p.attachment))
	for _, name := range []string{"page.css", "page.js", "icon.svg"} {
		mux.HandleFunc("/assets/"+name, asset(name))
	}
}

// answer is a page before it is rendered.
type answer struct {
	code     int
	template string
	data     any
}

// serve renders the whole page before it sends anything: readers would take half a page for a whole one.
func (p *pages) serve(look func(*http.Request) answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		packed := strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
		var page []byte
		var code int
		var err error
		if !p.limiter.do(r.Context(), func() {
			a := look(r)
			code = a.code
			page, err = a.html(packed)
		}) {
			return // the client has left
		}
		if err != nil {
			sendError(w, http.StatusInternalServerError, err.Error())
			return
		}
		w.Header().Set("Content-Security-Policy", pagePolicy)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Vary", "Accept-Encoding")
		if packed {
			w.Header().Set("Content-Encoding", "gzip")
		}
		w.WriteHeader(code)
		_, _ = w.Write(page) // the client may have left
	}
}

// html renders the page, compressed with gzip if packed.
func (a answer) html(packed bool) ([]byte, error) {
	var body bytes.Buffer
	if err := pageTemplates.ExecuteTemplate(&body, a.template, a.data); err != nil {
		return nil, fmt.Errorf("make page %s: %w", a.template, err)
	}
	if !utf8.Valid(body.Bytes()) { // a path or a query may hold any bytes
		valid := bytes.ToValidUTF8(body.Bytes(), []byte("\uFFFD"))
		body.Reset()
		body.Write(valid)
	}
	if !packed {
		return body.Bytes(), nil
	}
	// Compression leaves a tenth of a page. This counts, because browsers reload pages all the time,
	// mostly through kubectl port-forward.
	var short bytes.Buffer
	packer, _ := gzip.NewWriterLevel(&short, gzip.BestSpeed) // a valid level
	_, _ = body.WriteTo(packer)                              // into memory
	_ = packer.Close()
	return short.Bytes(), nil
}

// frame is the part that all pages have.
type frame struct {
	Title    string
	Here     string // path of the page
	Overview Overview
	Metrics  string // path of the metrics
	Now      time.Time
}

func (p *pages) frame(r *http.Request, title string) frame {
	return frame{Title: title, Here: r.URL.Path, Overview: p.hub.overview(), Metrics: p.metricsPath, Now: time.Now()}
}

// Age returns the time since t, as seen at Now. It returns nil for the zero time, as At and Until do.
func (f frame) Age(t time.Time) *moment { return momentOf(t, diagnosis.Length(f.Now.Sub(t))) }

// At returns the time of day with its age, and the date unless it is today.
func (f frame) At(t time.Time) *moment {
	layout := "15:04:05 UTC"
	if t.UTC().Format(time.DateOnly) != f.Now.UTC().Format(time.DateOnly) {
		layout = utcLayout
	}
	return momentOf(t, t.UTC().Format(layout)+", "+diagnosis.Ago(t, f.Now))
}

// Until returns the time until t, as seen at Now.
func (f frame) Until(t time.Time) *moment { return momentOf(t, diagnosis.Length(t.Sub(f.Now))) }

// Working returns a lane for a page.
func (f frame) Working(l Lane) laneView { return laneView{f, l} }

// laneView is a lane at a moment.
type laneView struct {
	frame
	Lane
}

// Slow reports whether the oldest call takes long.
func (l laneView) Slow() bool { return passed(l.OldestCall.Since, l.Now) >= slow }

const utcLayout = "2006-01-02 15:04:05 UTC"

// moment is a time with a text about it.
type moment struct {
	Time time.Time
	Text string
}

func momentOf(t time.Time, text string) *moment {
	if t.IsZero() {
		return nil
	}
	return &moment{t.UTC(), text}
}

// UTC returns the date and the time.
func (m *moment) UTC() string { return m.Time.Format(utcLayout) }

// errorPage is the page for an error.
type errorPage struct {
	frame
	Text string
}

func (p *pages) fail(r *http.Request, code int, text string) answer {
	return answer{code, "error.html", errorPage{p.frame(r, http.StatusText(code)), text}}
}

// asset serves an embedded file. Browsers may keep it but have to revalidate it: an update of the
// hub may change it.
func asset(name string) http.HandlerFunc {
	body, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(err) // the name is not embedded
	}
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(body))
	}
}
