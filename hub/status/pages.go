package status

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

const (
	mostTrouble = 10  // rows of volumes in trouble on the first page
	mostOpen    = 25  // rows of VolumeAttachments on the page of a driver
	mostListed  = 100 // VolumeAttachments in the list
)

// stateOpen is a choice beside the states: an operation is due.
const stateOpen = "open"

// overviewPage is the first page: a row for each driver.
type overviewPage struct {
	Query, State string
	States       []HealthState  // choices of the filter by health
	Drivers      []Driver       // the worst first
	Known        int            // drivers, also those that the filter hides
	Health       map[string]int // likewise, by health
	Total        int            // VolumeAttachments
	Volumes      map[AttachmentState]int
	Trouble      int            // VolumeAttachments that are broken or need attention
	Groups       [][]Attachment // of these, the worst first
}

func (s *site) overview(r *http.Request) (any, *failure) {
	q, now := r.URL.Query(), time.Now()
	p := overviewPage{Query: q.Get("q"), State: q.Get("state"), States: HealthStates, Health: map[string]int{}, Volumes: map[AttachmentState]int{}}
	drivers := s.hub.drivers()
	for _, d := range drivers {
		p.Health[string(d.Health.State)]++
		if d.matches(p.Query, p.State, now) {
			p.Drivers = append(p.Drivers, d)
		}
	}
	p.Known = len(drivers)
	slices.SortStableFunc(p.Drivers, func(a, b Driver) int {
		return cmp.Or(a.Health.State.Compare(b.Health.State), cmp.Compare(unixOrLast(a.Health.Since), unixOrLast(b.Health.Since)))
	})
	all := s.hub.attachments(AttachmentFilter{})
	p.Total = len(all)
	for _, a := range all {
		p.Volumes[a.State]++
	}
	trouble := slices.DeleteFunc(all, func(a Attachment) bool { return !a.Health.Needs() })
	p.Trouble, p.Groups = len(trouble), s.groups(trouble, mostTrouble)
	return p, nil
}

// groups returns the first groups of VolumeAttachments, the worst first.
func (s *site) groups(all []Attachment, most int) [][]Attachment {
	s.hub.addReasons(all)
	WorstFirst(all)
	groups := Groups(all)
	return groups[:min(len(groups), most)]
}

// matches reports whether a driver has all words of a query in its texts, and the health.
func (d Driver) matches(query, state string, now time.Time) bool {
	if state != "" && state != string(d.Health.State) {
		return false
	}
	texts := append([]string{d.Name, d.State, d.Reason, d.Mode, d.Source, d.Endpoint, d.Version, d.Lease.Holder}, d.Waiters...)
	for _, reason := range d.Health.Reasons {
		texts = append(texts, reason.Text(now))
	}
	return matchesText(query, texts...)
}

// matchesText reports whether all words of a query are in the texts.
func matchesText(query string, texts ...string) bool {
	all := strings.ToLower(strings.Join(texts, "\n"))
	return !slices.ContainsFunc(strings.Fields(strings.ToLower(query)), func(word string) bool { return !strings.Contains(all, word) })
}

// driverPage is the page of one driver.
type driverPage struct {
	Driver
	Open, All int            // VolumeAttachments
	Groups    [][]Attachment // VolumeAttachments for which an operation is due
}

func (s *site) driverPage(r *http.Request) (any, *failure) {
	found, failed := s.driver(r)
	if failed != nil {
		return nil, failed
	}
	p := driverPage{Driver: found.(Driver)}
	all := s.hub.attachments(AttachmentFilter{Driver: p.Name})
	p.All = len(all)
	due := slices.DeleteFunc(all, func(a Attachment) bool { return !open(a) })
	p.Open, p.Groups = len(due), s.groups(due, mostOpen)
	return p, nil
}

// ShowsConnectionError reports whether the last error of the connection is on the page beside the reasons of
// the health: one of them may say the same.
func (p driverPage) ShowsConnectionError() bool {
	text := p.ConnectionError.Text
	return text != "" && !slices.ContainsFunc(p.Health.Reasons, func(r Reason) bool { return strings.Contains(r.Detail, text) })
}

// attachmentPage is the page of one VolumeAttachment.
type attachmentPage struct {
	Attachment
	Served    *Driver // nil if its driver is not served
	Diagnoses []diagnosis.Diagnosis
}

func (s *site) attachment(r *http.Request) (any, *failure) {
	name := r.PathValue("name")
	found := s.hub.attachments(AttachmentFilter{Name: name})
	if len(found) == 0 {
		return nil, &failure{http.StatusNotFound, fmt.Sprintf("VolumeAttachment %q does not exist. It may have been detached and deleted.", sanitize(name, shortText))}
	}
	in := s.hub.inputs()(found[0])
	return attachmentPage{found[0], in.Driver, Diagnose(in)}, nil
}

// ShowsLastError reports whether the last error has a place of its own: no diagnosis has all of it.
func (p attachmentPage) ShowsLastError() bool {
	text := p.LastError
	return text != "" && !slices.ContainsFunc(p.Diagnoses, func(d diagnosis.Diagnosis) bool {
		return d.Detail != "" && strings.HasSuffix(diagnosis.Clause(text), diagnosis.Clause(d.Detail))
	})
}

// attachmentsPage is a list of VolumeAttachments.
type attachmentsPage struct {
	Driver, State, Health, Node, Query string
	States, Healths                    []string // choices of the filters
	Groups                             [][]Attachment
	Shown, Total                       int // of all that match
}

func (s *site) attachments(r *http.Request) (any, *failure) {
	q, now := r.URL.Query(), time.Now()
	p := attachmentsPage{Driver: q.Get("driver"), State: q.Get("state"), Health: q.Get("health"), Node: q.Get("node"), Query: q.Get("q")}
	filter := AttachmentFilter{Driver: p.Driver, Node: p.Node}
	var wrongState error
	if p.State != stateOpen {
		wrongState = choose(&filter.States, "state", p.State, AttachmentStates)
	}
	if err := errors.Join(wrongState, choose(&filter.Health, "health", p.Health, HealthStates)); err != nil {
		return nil, &failure{http.StatusBadRequest, sanitize(err.Error(), shortText)}
	}
	p.States = append([]string{stateOpen}, texts(AttachmentStates)...)
	p.Healths = []string{string(Broken + "," + Attention), string(Broken), string(Attention), string(Fine)}

	found := slices.DeleteFunc(s.hub.attachments(filter), func(a Attachment) bool { return p.State == stateOpen && !open(a) })
	if p.Query != "" { // only then are the reasons of all of them needed
		s.hub.addReasons(found)
		found = slices.DeleteFunc(found, func(a Attachment) bool {
			return !matchesText(p.Query, a.Name, a.Driver, a.Node, a.PersistentVolume, a.VolumeHandle, a.Claim, a.LastError, a.Waiting.String(), a.Health.Text(now))
		})
	}
	WorstFirst(found)
	p.Shown, p.Total = min(len(found), mostListed), len(found)
	rows := found[:p.Shown]
	s.hub.addReasons(rows)
	p.Groups = slices.Collect(slices.Chunk(rows, 1))
	return p, nil
}
