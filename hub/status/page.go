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
)

// pageFiles are the templates, and in assets what they refer to.
//
//go:embed page
var pageFiles embed.FS

const (
	// pagePolicy lets a page have its own files and itself, and nothing else: no script
	// or style in it runs, not even if one got past the templates' escaping.
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
		"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	// mostPages is how many pages are made at once: those that follow wait.
	mostPages = 4
)

var pageTemplates = template.Must(template.New("").Funcs(template.FuncMap{
	"count":    count,
	"total":    func(n uint64) string { return count(int(n)) },
	"plural":   plural,
	"duration": duration,
	"short":    func(text string) string { return clean(text, shortText) },
	"long":     func(text string) string { return clean(text, longText) },
	"driver":   func(name string) string { return "/drivers/" + url.PathEscape(name) },
	"va":       func(name string) string { return "/attachments/" + url.PathEscape(name) },
	"list":     attachmentsURL,
	"seconds":  func(s float64) string { return duration(time.Duration(s * float64(time.Second))) },
	"waiting":  func(text string) string { return waiting(clean(text, shortText)) },
	"join":     func(words []string) string { return strings.Join(words, ", ") },
}).ParseFS(pageFiles, "page/*.html"))

// pages is the status page and those below it: what the source says, for people.
type pages struct {
	source      Source
	metrics     *Metrics
	metricsPath string
	turns       chan struct{}
}

func newPages(o Options) *pages {
	return &pages{source: o.Source, metrics: o.Metrics, metricsPath: o.MetricsPath, turns: make(chan struct{}, mostPages)}
}

func (p *pages) register(mux *http.ServeMux) {
	mux.HandleFunc("/{$}", p.inTurn(p.overview))
	mux.HandleFunc("/drivers/{name}", p.inTurn(p.driver))
	mux.HandleFunc("/attachments", p.inTurn(p.attachments))
	mux.HandleFunc("/attachments/{name}", p.inTurn(p.attachment))
	for _, name := range []string{"page.css", "page.js", "icon.svg"} {
		mux.HandleFunc("/assets/"+name, asset(name))
	}
}

// inTurn bounds how many pages are made at once: many browsers that refresh must not
// take the processor from the work.
func (p *pages) inTurn(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case p.turns <- struct{}{}:
			defer func() { <-p.turns }()
			next(w, r)
		case <-r.Context().Done():
		}
	}
}

// frame is what is around every page.
type frame struct {
	Title    string
	Here     string // path of the page
	Overview Overview
	Metrics  string // path of the metrics
	Now      time.Time
}

func (p *pages) frame(r *http.Request, title string) frame {
	return frame{Title: title, Here: r.URL.Path, Overview: p.source.Overview(), Metrics: p.metricsPath, Now: time.Now()}
}

// Age, Ago and Until write times from where the page stands; "" for one that there is
// not.
func (f frame) Age(t time.Time) string   { return unlessZero(t, age(f.Now, t)) }
func (f frame) Ago(t time.Time) string   { return unlessZero(t, ago(f.Now, t)) }
func (f frame) Until(t time.Time) string { return unlessZero(t, duration(t.Sub(f.Now))) }

func unlessZero(t time.Time, text string) string {
	if t.IsZero() {
		return ""
	}
	return text
}

// UTC writes a time in full.
func (f frame) UTC(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// show answers with a page. It is made as a whole first: half a page would be taken for
// a whole one.
func show(w http.ResponseWriter, r *http.Request, code int, name string, data any) {
	var body bytes.Buffer
	if err := pageTemplates.ExecuteTemplate(&body, name, data); err != nil {
		sendError(w, http.StatusInternalServerError, fmt.Sprintf("make page %s: %v", name, err))
		return
	}
	w.Header().Set("Content-Security-Policy", pagePolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Vary", "Accept-Encoding")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(code)
		_, _ = body.WriteTo(w) // whoever has left need not know
		return
	}
	// The same few words again and again: a tenth is left, which counts for a page that
	// is asked for all the time, mostly through kubectl port-forward.
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(code)
	packed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // it is a level
	_, _ = body.WriteTo(packed)
	_ = packed.Close()
}

// complaintPage is what there is to say instead of a page.
type complaintPage struct {
	frame
	Text string
}

func (p *pages) complain(w http.ResponseWriter, r *http.Request, code int, text string) {
	show(w, r, code, "complaint.html", complaintPage{p.frame(r, http.StatusText(code)), text})
}

// asset serves an embedded file, which browsers may keep and have to ask about: after an
// update of the hub it is another one.
func asset(name string) http.HandlerFunc {
	body, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is in the program or it is not
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
