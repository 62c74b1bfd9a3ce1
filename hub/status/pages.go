package status

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

const (
	mostTrouble = 10  // rows of volumes in trouble on the first page
	mostOpen    = 25  // rows of VolumeAttachments on the page of a driver
	listPage    = 100 // VolumeAttachments on one page of the list
)

// Choices of filters beside states and healths.
const (
	problems  = "problems" // drivers that are broken or need attention
	stateOpen = "open"     // VolumeAttachments for which an operation is due
)

// overviewPage is the first page: a row for each driver.
type overviewPage struct {
	Query, State string
	States       []string       // choices of the filter by health
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
	p := overviewPage{Query: q.Get("q"), State: q.Get("state"), Health: map[string]int{}, Volumes: map[AttachmentState]int{}}
	drivers := s.hub.drivers()
	for _, d := range drivers {
		p.Health[string(d.Health.State)]++
		if d.matches(p.Query, p.State, now) {
			p.Drivers = append(p.Drivers, d)
		}
	}
	p.Known = len(drivers)
	p.States = withAsked(p.State, append([]string{problems}, texts(HealthStates)...)...)
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
	if state != "" && state != string(d.Health.State) && !(state == problems && d.Health.Needs()) {
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
	Failed    []failureRow
}

// failureRow is failures of an operation with the same text: the latest, whose volume is named, and their number.
type failureRow struct {
	Failure
	Volume string
	Times  int
}

func (s *site) driverPage(r *http.Request) (any, *failure) {
	found, failed := s.driver(r)
	if failed != nil {
		return nil, failed
	}
	p := driverPage{Driver: found.(Driver)}
	all := s.hub.attachments(AttachmentFilter{Driver: p.Name})
	p.All = len(all)
	for _, f := range p.Failures {
		i := slices.IndexFunc(p.Failed, func(r failureRow) bool { return r.Operation == f.Operation && r.Text == f.Text })
		if i < 0 {
			i, p.Failed = len(p.Failed), append(p.Failed, failureRow{Failure: f, Volume: f.VolumeAttachment})
			if at := slices.IndexFunc(all, func(a Attachment) bool { return a.Name == f.VolumeAttachment }); at >= 0 {
				p.Failed[i].Volume = all[at].Title()
			}
		}
		p.Failed[i].Times++
	}
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
	Drivers, States, Healths           []string // choices of the filters
	Groups                             [][]Attachment
	From, To, Total                    int    // places of the rows in all that match, from 1
	First, Previous, Next              string // URLs of the other pages; empty if there are none
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
	for _, d := range s.hub.judged(nil) {
		p.Drivers = append(p.Drivers, d.Name)
	}
	p.Drivers = withAsked(p.Driver, p.Drivers...)
	p.States = withAsked(p.State, append([]string{stateOpen}, texts(AttachmentStates)...)...)
	p.Healths = withAsked(p.Health, string(Broken+","+Attention), string(Broken), string(Attention), string(Fine))

	found := slices.DeleteFunc(s.hub.attachments(filter), func(a Attachment) bool { return p.State == stateOpen && !open(a) })
	if p.Query != "" { // only then are the reasons of all of them needed
		s.hub.addReasons(found)
		found = slices.DeleteFunc(found, func(a Attachment) bool {
			return !matchesText(p.Query, a.Name, a.Driver, a.Node, a.PersistentVolume, a.VolumeHandle, a.Claim, a.LastError, a.WaitsFor, a.Health.Text(now))
		})
	}
	WorstFirst(found)
	from, _ := strconv.Atoi(q.Get("from")) // 0 if it is no number
	from = min(max(0, from), len(found))
	to := min(from+listPage, len(found))
	rows := found[from:to]
	s.hub.addReasons(rows)
	for i := range rows {
		p.Groups = append(p.Groups, rows[i:i+1])
	}
	p.From, p.To, p.Total = from+1, to, len(found)
	link := func(from int) string {
		q.Set("from", strconv.Itoa(from))
		return "/attachments?" + q.Encode()
	}
	if from > 0 {
		p.First, p.Previous = link(0), link(max(0, from-listPage))
	}
	if to < len(found) {
		p.Next = link(to)
	}
	return p, nil
}

// withAsked returns the choices of a filter with the value that is asked for, which may be a list: a form keeps it.
func withAsked(asked string, choices ...string) []string {
	if asked != "" && !slices.Contains(choices, asked) {
		choices = append(choices, asked)
	}
	return choices
}
