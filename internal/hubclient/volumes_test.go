package hubclient

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// volumesSource is a replica with VolumeAttachments.
type volumesSource struct {
	source
	attachments []status.Attachment
}

func (s volumesSource) Attachments(status.AttachmentFilter) []status.Attachment {
	return slices.Clone(s.attachments)
}

// shortPage is how many VolumeAttachments a Hub of hubOf asks for at once. Under the race detector on a busy machine, an answer with
// volumesPage of them can take longer than requestTimeout.
const shortPage = 20

// shortPages lets a Hub ask for short pages where it asks for full ones.
type shortPages struct{ *http.Transport }

func (p shortPages) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/api/v1/attachments" {
		r = r.Clone(r.Context())
		q := r.URL.Query()
		if q.Get("limit") != strconv.Itoa(volumesPage) {
			return nil, fmt.Errorf("pages of %q are asked for, not of %d", q.Get("limit"), volumesPage)
		}
		q.Set("limit", strconv.Itoa(shortPage))
		r.URL.RawQuery = q.Encode()
	}
	return p.Transport.RoundTrip(r)
}

// hubOf returns the Hub of replicas that are served at these addresses.
func hubOf(t *testing.T, servers ...string) *Hub {
	t.Helper()
	h := &Hub{}
	for _, server := range servers {
		one, err := Find(t.Context(), Options{Server: server})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range one.replicas {
			r.client.Transport = shortPages{r.client.Transport.(*http.Transport)}
		}
		h.replicas = append(h.replicas, one.replicas...)
	}
	t.Cleanup(h.Close)
	return h
}

func addressOf(t *testing.T, s status.Source) string {
	t.Helper()
	return fmt.Sprintf("http://127.0.0.1:%d", serve(t, s))
}

// driverOf is a driver as a replica shows it. queued VolumeAttachments wait if the replica works for it.
func driverOf(name string, mine bool, queued int) status.Driver {
	d := status.Driver{Name: name, State: "Ready", Up: true, Mode: "active", Lease: status.Lease{Holder: "other", Mine: mine}}
	if mine {
		d.Lanes = []status.Lane{{Operation: status.Attach, Queued: queued}}
	}
	return d
}

// names returns the VolumeAttachments that a filter selects as "name state", sorted.
func names(t *testing.T, h *Hub, f status.AttachmentFilter) []string {
	t.Helper()
	var found []string
	err := h.Volumes(t.Context(), h.View(t.Context()), f, func(a status.Attachment) {
		if a.Health.State == "" {
			t.Errorf("%s has no health", a.Name)
		}
		found = append(found, a.Name+" "+string(a.State))
	})
	if err != nil {
		t.Error(err)
	}
	slices.Sort(found)
	return found
}

func TestEachVolumeIsListedOnceAsTheReplicaThatWorksForItsDriverSeesIt(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	view := func(worksFor string) []status.Attachment {
		var all []status.Attachment
		for _, driver := range []string{"a", "b"} {
			for i := range shortPage + 3 {
				a := status.Attachment{Name: fmt.Sprintf("%s-%05d", driver, i), Driver: driver, Node: "n", State: status.Waiting, Operation: status.Attach, Since: long}
				if driver == worksFor {
					a.State, a.LastError, a.Tries = status.Failing, "no", 1
				}
				if i == 0 {
					a.State, a.Operation = status.Attached, ""
				}
				all = append(all, a)
			}
		}
		return append(all, status.Attachment{Name: "stray", Driver: "x", Node: "m", State: status.Unserved, Operation: status.Attach, Since: long})
	}
	h := hubOf(t,
		addressOf(t, volumesSource{source{"one", []status.Driver{driverOf("a", true, 9), driverOf("b", false, 0)}}, view("a")}),
		addressOf(t, volumesSource{source{"two", []status.Driver{driverOf("a", false, 0), driverOf("b", true, 9)}}, view("b")}))

	all := names(t, h, status.AttachmentFilter{})
	if len(all) != 2*(shortPage+3)+1 || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Fatalf("listed %d, want each of %d once", len(all), 2*(shortPage+3)+1)
	}
	if all[0] != "a-00000 attached" || all[1] != "a-00001 failing" || all[shortPage+4] != "b-00001 failing" || all[len(all)-1] != "stray unserved" {
		t.Errorf("listed %s, %s, %s, %s", all[0], all[1], all[shortPage+4], all[len(all)-1])
	}
	for want, f := range map[int]status.AttachmentFilter{
		shortPage + 3:       {Driver: "b"},
		1:                   {Node: "m"},
		2:                   {States: []status.AttachmentState{status.Attached}},
		3:                   {States: []status.AttachmentState{status.Attached, status.Unserved}},
		2*(shortPage+2) + 1: {Health: []status.HealthState{status.Attention, status.Broken}},
		0:                   {States: []status.AttachmentState{status.Waiting}}, // the one that works for the driver knows better
	} {
		if got := names(t, h, f); len(got) != want {
			t.Errorf("%+v: listed %d, want %d", f, len(got), want)
		}
	}
}

func TestWhatCannotBeListedIsNamedAndTheRestIsListed(t *testing.T) {
	serving := func(driver string, attachments http.HandlerFunc) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/api/v1/attachments":
				attachments(w, r)
			case "/api/v1/drivers":
				fmt.Fprintf(w, `{"drivers": [{"name": %q}]}`, driver)
			default:
				fmt.Fprint(w, `{"identity": "id"}`)
			}
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	// A Continue that does not grow would otherwise be asked for without end.
	endless := serving("good", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"attachments": [{"name": "v", "driver": "good", "node": "n", "state": "attached", "tries": 0}], "total": 1, "continue": "v"}`)
	})
	bad := serving("bad", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
	h := hubOf(t, endless, bad)
	listed := 0
	err := h.Volumes(t.Context(), h.View(t.Context()), status.AttachmentFilter{}, func(status.Attachment) { listed++ })
	if err == nil || !strings.Contains(err.Error(), "VolumeAttachments of "+bad) || strings.Contains(err.Error(), endless) {
		t.Errorf("the error is %v, want one about the replica %s alone", err, bad)
	}
	if listed != 2 { // the second page is the same one
		t.Errorf("listed %d volumes, want 2", listed)
	}
}

func TestAVolumeIsNotUnservedIfAnyReplicaServesItsDriver(t *testing.T) {
	seen := func(s status.AttachmentState) []status.Attachment {
		return []status.Attachment{{Name: "v", Driver: "new", Node: "n", State: s}}
	}
	h := hubOf(t,
		addressOf(t, volumesSource{source{"with the entry", []status.Driver{driverOf("new", true, 1)}}, seen(status.Waiting)}),
		addressOf(t, volumesSource{source{"not yet reloaded", nil}, seen(status.Unserved)}))
	if got, want := names(t, h, status.AttachmentFilter{}), []string{"v waiting"}; !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}
