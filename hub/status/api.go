package status

import (
	"cmp"
	"errors"
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

func (s *site) driver(v view, r *http.Request) (any, *failure) {
	name := r.PathValue("name")
	d := v.driver(name)
	if d == nil {
		return nil, &failure{Code: http.StatusNotFound, Text: fmt.Sprintf("driver %q is not served here: check the spelling of its name, and the configuration", name)}
	}
	d.Checklist = s.Source.Checklist(r.Context(), name)
	return *d, nil
}

func (s *site) attachmentList(v view, r *http.Request) (any, *failure) {
	filter, q, err := parseFilter(r, "limit", "continue")
	limit := defaultPage
	if q.Has("limit") {
		var wrong error
		if limit, wrong = strconv.Atoi(q.Get("limit")); wrong != nil || limit < 1 || limit > longestPage {
			err = errors.Join(err, fmt.Errorf("limit %q is not a number from 1 to %d", q.Get("limit"), longestPage))
		}
	}
	if err != nil {
		return nil, &failure{Code: http.StatusBadRequest, Text: err.Error()}
	}
	all := v.attachments(filter)
	slices.SortFunc(all, func(a, b Attachment) int { return cmp.Compare(a.Name, b.Name) })
	// Pages that begin after a name hold while VolumeAttachments come and go.
	from, _ := slices.BinarySearchFunc(all, q.Get("continue"), func(a Attachment, after string) int { return cmp.Or(cmp.Compare(a.Name, after), -1) })
	to := min(from+limit, len(all))
	list := AttachmentList{Attachments: append([]Attachment{}, all[from:to]...), Total: len(all)}
	if to < len(all) {
		list.Continue = all[to-1].Name
	}
	return list, nil
}

// parseFilter returns the filter of a query, which may have more parameters, and the query. It rejects what it does not
// know: a list that ignores a filter misleads.
func parseFilter(r *http.Request, more ...string) (f AttachmentFilter, q url.Values, err error) {
	if q, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return f, q, fmt.Errorf("parse query: %w", err)
	}
	known := append([]string{"driver", "node", "name", "state", "health"}, more...)
	for key, values := range q {
		if !slices.Contains(known, key) {
			return f, q, fmt.Errorf("unknown parameter %q: there are %s", key, strings.Join(known, ", "))
		} else if len(values) > 1 {
			return f, q, fmt.Errorf("%s is given %d times", key, len(values))
		}
	}
	f = AttachmentFilter{Driver: q.Get("driver"), Node: q.Get("node"), Name: q.Get("name")}
	return f, q, errors.Join(choose(&f.States, "state", q.Get("state"), AttachmentStates), choose(&f.Health, "health", q.Get("health"), HealthStates))
}

// choose sets a list from its values, separated by commas.
func choose[T ~string](list *[]T, key, values string, of []T) error {
	for value := range strings.FieldsFuncSeq(values, func(r rune) bool { return r == ',' }) {
		if !slices.Contains(of, T(value)) {
			return fmt.Errorf("%s %q is none of %s", key, value, Joined(of, ", "))
		}
		*list = append(*list, T(value))
	}
	return nil
}

// Joined returns states with a separator between them.
func Joined[T ~string](states []T, separator string) string {
	texts := make([]string, len(states))
	for i, state := range states {
		texts[i] = string(state)
	}
	return strings.Join(texts, separator)
}
