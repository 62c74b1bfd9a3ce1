package status

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// VolumeAttachments in one answer: without ?limit, and at most.
	defaultPage = 500
	longestPage = 5000
)

// DriverList is what /api/v1/drivers answers.
type DriverList struct {
	Drivers []Driver `json:"drivers"` // by name
}

// AttachmentList is what /api/v1/attachments answers: one page.
type AttachmentList struct {
	Attachments []Attachment `json:"attachments"`        // by name
	Total       int          `json:"total"`              // VolumeAttachments that match, on all pages
	Continue    string       `json:"continue,omitempty"` // parameter of the next page; empty on the last page
}

// api answers with what the source says, as JSON.
type api struct {
	hub     view
	limiter limiter
	volumes VolumeHealthReader // nil: volume health is not served
}

func (a api) register(mux *http.ServeMux) {
	mux.HandleFunc("/api/v1/overview", answers(func() any { return a.hub.overview() }))
	mux.HandleFunc("/api/v1/drivers", a.drivers)
	mux.HandleFunc("/api/v1/drivers/{name}", a.driver)
	mux.HandleFunc("/api/v1/attachments", a.attachments)
	if a.volumes != nil {
		mux.HandleFunc("/api/v1/volume-health", a.volumeHealth)
	}
}

// answers returns a handler that answers with a value as JSON.
func answers(value func() any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, http.StatusOK, value()) }
}

func (a api) drivers(w http.ResponseWriter, r *http.Request) {
	var list DriverList
	if a.limiter.do(r.Context(), func() { list.Drivers = a.hub.drivers() }) {
		sendJSON(w, http.StatusOK, list)
	}
}

func (a api) driver(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	var d *Driver
	if !a.limiter.do(r.Context(), func() { d = a.hub.checked(r.Context(), name) }) {
		return // the client has left
	}
	if d == nil {
		sendError(w, http.StatusNotFound, fmt.Sprintf("driver %q is not served here", name))
		return
	}
	sendJSON(w, http.StatusOK, d)
}

func (a api) attachments(w http.ResponseWriter, r *http.Request) {
	q, err := parseAttachmentQuery(r.URL.RawQuery)
	if err != nil {
		sendError(w, http.StatusBadRequest, err.Error())
		return
	}
	var body []byte
	if !a.limiter.do(r.Context(), func() { body, err = json.Marshal(a.page(q)) }) {
		return // the client has left
	}
	if err != nil { // it has a JSON form
		sendError(w, http.StatusInternalServerError, err.Error())
		return
	}
	sendBody(w, http.StatusOK, body)
}

// page returns the page that a query asks for.
func (a api) page(q attachmentQuery) AttachmentList {
	list := q.page(a.hub.attachments(q.filter))
	a.hub.addReasons(list.Attachments)
	return list
}

// attachmentQuery is the query of /api/v1/attachments.
type attachmentQuery struct {
	filter AttachmentFilter
	limit  int
	after  string // the last name on the previous page
}

// parseAttachmentQuery rejects what it does not know: a list that ignores a filter misleads.
func parseAttachmentQuery(raw string) (attachmentQuery, error) {
	q := attachmentQuery{limit: defaultPage}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, fmt.Errorf("parse query: %w", err)
	}
	for key, value := range values {
		if len(value) > 1 {
			return q, fmt.Errorf("%s is given %d times", key, len(value))
		}
		if err := q.set(key, value[0]); err != nil {
			return q, err
		}
	}
	return q, nil
}

func (q *attachmentQuery) set(key, value string) error {
	switch key {
	case "driver":
		q.filter.Driver = value
	case "node":
		q.filter.Node = value
	case "name":
		q.filter.Name = value
	case "continue":
		q.after = value
	case "state":
		return choose(&q.filter.States, key, value, AttachmentStates)
	case "health":
		return choose(&q.filter.Health, key, value, HealthStates)
	case "limit":
		limit, err := strconv.Atoi(value)
		if err != nil || limit < 1 || limit > longestPage {
			return fmt.Errorf("limit %q is not a number from 1 to %d", value, longestPage)
		}
		q.limit = limit
	default:
		return fmt.Errorf("unknown parameter %q: there are driver, node, name, state, health, limit and continue", key)
	}
	return nil
}

// choose sets a list from its values, separated by commas.
func choose[T ~string](list *[]T, key, values string, of []T) error {
	if values == "" {
		return nil
	}
	for value := range strings.SplitSeq(values, ",") {
		if !slices.Contains(of, T(value)) {
			return fmt.Errorf("%s %q is none of %s", key, value, Joined(of, ", "))
		}
		*list = append(*list, T(value))
	}
	return nil
}

// page returns the page of the selected VolumeAttachments that the query asks for.
func (q attachmentQuery) page(all []Attachment) AttachmentList {
	rest := all[sortAfter(all, q.after):]
	list := AttachmentList{Total: len(all)}
	if len(rest) > q.limit {
		rest = rest[:q.limit]
		list.Continue = rest[q.limit-1].Name
	}
	list.Attachments = orNone(rest)
	return list
}

// Joined returns states with a separator between them.
func Joined[T ~string](states []T, separator string) string {
	plain := make([]string, len(states))
	for i, s := range states {
		plain[i] = string(s)
	}
	return strings.Join(plain, separator)
}
