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

func (s *site) driver(r *http.Request) (any, *failure) {
	name := r.PathValue("name")
	d := s.hub.driver(r.Context(), name)
	if d == nil {
		return nil, &failure{http.StatusNotFound, fmt.Sprintf("driver %q is not served here: check the spelling of its name, and the configuration", sanitize(name, shortText))}
	}
	return *d, nil
}

func (s *site) attachmentList(r *http.Request) (any, *failure) {
	filter, after, limit, err := parseAttachmentQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &failure{http.StatusBadRequest, err.Error()}
	}
	all := s.hub.attachments(filter)
	slices.SortFunc(all, func(a, b Attachment) int { return cmp.Compare(a.Name, b.Name) })
	// Pages that begin after a name hold while VolumeAttachments come and go.
	from, _ := slices.BinarySearchFunc(all, after, func(a Attachment, after string) int { return cmp.Or(cmp.Compare(a.Name, after), -1) })
	to := min(from+limit, len(all))
	list := AttachmentList{Attachments: append([]Attachment{}, all[from:to]...), Total: len(all)}
	if to < len(all) {
		list.Continue = all[to-1].Name
	}
	s.hub.addReasons(list.Attachments)
	return list, nil
}

// parseAttachmentQuery rejects what it does not know: a list that ignores a filter misleads.
// after is the last name on the previous page.
func parseAttachmentQuery(raw string) (filter AttachmentFilter, after string, limit int, err error) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return filter, "", 0, fmt.Errorf("parse query: %w", err)
	}
	for key, values := range q {
		if !slices.Contains([]string{"driver", "node", "name", "state", "health", "limit", "continue"}, key) {
			return filter, "", 0, fmt.Errorf("unknown parameter %q: there are driver, node, name, state, health, limit and continue", key)
		} else if len(values) > 1 {
			return filter, "", 0, fmt.Errorf("%s is given %d times", key, len(values))
		}
	}
	limit = defaultPage
	if q.Has("limit") {
		if limit, err = strconv.Atoi(q.Get("limit")); err != nil || limit < 1 || limit > longestPage {
			err = fmt.Errorf("limit %q is not a number from 1 to %d", q.Get("limit"), longestPage)
		}
	}
	filter = AttachmentFilter{Driver: q.Get("driver"), Node: q.Get("node"), Name: q.Get("name")}
	err = errors.Join(err, choose(&filter.States, "state", q.Get("state"), AttachmentStates), choose(&filter.Health, "health", q.Get("health"), HealthStates))
	return filter, q.Get("continue"), limit, err
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

// Joined returns states with a separator between them.
func Joined[T ~string](states []T, separator string) string {
	return strings.Join(texts(states), separator)
}

func texts[T ~string](words []T) (all []string) {
	for _, word := range words {
		all = append(all, string(word))
	}
	return all
}
