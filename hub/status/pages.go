package status

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

const (
	mostTrouble = 10  // rows of volumes in trouble on the first page
	mostOpen    = 25  // rows of VolumeAttachments on the page of a driver
	mostListed  = 100 // VolumeAttachments in the list
)

// overviewPage is the first page: a row for each driver.
type overviewPage struct {
	Query    string
	Drivers  []Driver       // the worst first
	Known    int            // drivers, also those that the query hides
	Health   map[string]int // likewise, by health
	Total    int            // VolumeAttachments
	Volumes  map[AttachmentState]int
	Trouble  int // VolumeAttachments that are broken or need attention
	State    HealthState
	Headline string
	Groups   [][]Attachment // of these, the worst first
}

func (s *site) overview(v view, r *http.Request) (any, *failure) {
	p := overviewPage{Query: r.URL.Query().Get("q"), Known: len(v.drivers), Health: map[string]int{}, Volumes: map[AttachmentState]int{}}
	for _, d := range v.drivers {
		p.Health[string(d.Health.State)]++
		if matches(p.Query, d.Name, string(d.Health.State), d.State, d.Reason, d.Mode, d.Source, d.Endpoint, d.Version, d.Lease.Holder,
			d.Health.text(v.Now)) {
			p.Drivers = append(p.Drivers, d)
		}
	}
	slices.SortStableFunc(p.Drivers, func(a, b Driver) int {
		return cmp.Or(a.Health.State.Compare(b.Health.State), cmp.Compare(unixOrLast(a.Health.Since), unixOrLast(b.Health.Since)))
	})
	all := v.attachments(AttachmentFilter{})
	for _, a := range all {
		p.Volumes[a.State]++
	}
	trouble := slices.DeleteFunc(all, func(a Attachment) bool { return !a.Health.Needs() })
	p.Total, p.Trouble, p.Groups = len(all), len(trouble), worstGroups(trouble, mostTrouble)
	p.State, p.Headline = Headline(v.Overview.Config, v.drivers, trouble, v.Now)
	return p, nil
}

// worstGroups returns the first groups of VolumeAttachments, the worst first.
func worstGroups(all []Attachment, most int) [][]Attachment {
	WorstFirst(all)
	groups := Groups(all)
	return groups[:min(len(groups), most)]
}

// matches reports whether all words of a query are in the texts.
func matches(query string, texts ...string) bool {
	all := strings.ToLower(strings.Join(texts, "\n"))
	return !slices.ContainsFunc(strings.Fields(strings.ToLower(query)), func(word string) bool { return !strings.Contains(all, word) })
}

// driverPage is the page of one driver.
type driverPage struct {
	Driver
	Open, All int            // VolumeAttachments
	Groups    [][]Attachment // VolumeAttachments for which an operation is due, or that are in trouble
}

func (s *site) driverPage(v view, r *http.Request) (any, *failure) {
	found, failed := s.driver(v, r)
	if failed != nil {
		return nil, failed
	}
	all := v.attachments(AttachmentFilter{Driver: r.PathValue("name")})
	due := slices.DeleteFunc(all, func(a Attachment) bool { return !open(a) && !a.Health.Needs() })
	p := driverPage{found.(Driver), len(due), len(all), worstGroups(due, mostOpen)}
	p.Failures = slices.DeleteFunc(slices.Clone(p.Failures), func(f Failure) bool { // beside those of the volumes on the page
		return slices.ContainsFunc(due, func(a Attachment) bool { return a.Name == f.VolumeAttachment && a.LastError == f.Text })
	})
	for _, group := range p.Groups {
		for i, r := range group[0].Health.Reasons {
			if slices.ContainsFunc(p.Health.Reasons, func(of Reason) bool { return of.Fact == r.Fact }) {
				group[0].Health.Reasons[i].Detail = "" // the driver's own diagnosis has it
			}
		}
	}
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

func (s *site) attachment(v view, r *http.Request) (any, *failure) {
	name := r.PathValue("name")
	found := v.attachments(AttachmentFilter{Name: name})
	if len(found) == 0 {
		return nil, &failure{Code: http.StatusNotFound, Text: fmt.Sprintf("VolumeAttachment %q does not exist. It may have been detached and deleted.", name)}
	}
	in := v.input(found[0])
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
	Query        string
	Filter       url.Values // of the links that lead here, beside the query
	Groups       [][]Attachment
	Shown, Total int // of all that match
}

func (s *site) attachments(v view, r *http.Request) (any, *failure) {
	filter, q, err := parseFilter(r, "q")
	if err != nil {
		return nil, &failure{Code: http.StatusBadRequest, Text: err.Error()}
	}
	p := attachmentsPage{Query: q.Get("q"), Filter: q}
	q.Del("q")
	found := slices.DeleteFunc(v.attachments(filter), func(a Attachment) bool {
		return p.Query != "" && !matches(p.Query, a.Name, a.Driver, a.Node, string(a.State), string(a.Health.State),
			a.PersistentVolume, a.VolumeHandle, a.Claim, a.LastError, a.Waiting.String(), a.Health.text(v.Now))
	})
	WorstFirst(found)
	p.Shown, p.Total = min(len(found), mostListed), len(found)
	p.Groups = slices.Collect(slices.Chunk(found[:p.Shown], 1))
	return p, nil
}
