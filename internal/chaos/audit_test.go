package chaos

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// inOrder is a state in which everything holds: volume v is asked for on node n, and is there.
func inOrder() state {
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "v-p0.n", UID: "1", Finalizers: []string{attach.Finalizer("d")}}}
	va.Status.Attached = true
	return state{
		wanted:      map[string]want{"v-p0.n": {attachment: "v-p0.n", uid: "1", volume: "v", driver: "d", nodeID: "id-n"}},
		attachments: []*storagev1.VolumeAttachment{va},
		persistent:  []string{"v"},
		volumes:     []*corev1.PersistentVolume{{ObjectMeta: metav1.ObjectMeta{Name: "v"}}},
		books:       []fakecsi.Books{{Driver: "d", Attached: map[string]map[string]fakecsi.Attachment{"v": {"id-n": {}}}}},
	}
}

func TestAuditFindsWhatDoesNotHold(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*state)
		want   string // empty: nothing
	}{
		"all holds":             {func(*state) {}, ""},
		"a pod has not settled": {func(s *state) { s.moving = []string{"v"} }, "should be gone by now"},
		"status is behind":      {func(s *state) { s.attachments[0].Status.Attached = false }, "is not attached"},
		"error stays in the status": {func(s *state) { s.attachments[0].Status.AttachError = &storagev1.VolumeError{Message: "no"} },
			"still has an error"},
		"no finalizer":       {func(s *state) { s.attachments[0].Finalizers = nil }, "has no finalizer"},
		"another object":     {func(s *state) { s.attachments[0].UID = "2" }, "nobody asks for it any more"},
		"finalizer left":     {func(s *state) { s.wanted, s.books[0].Attached = nil, nil }, "nobody asks for it any more"},
		"object is gone":     {func(s *state) { s.attachments = nil }, "is asked for and is not there"},
		"storage has it not": {func(s *state) { s.books[0].Attached = nil }, "the storage has it on []"},
		"storage has more":   {func(s *state) { s.books[0].Attached["w"] = map[string]fakecsi.Attachment{"id-n": {}} }, "nobody asks for that"},
		"on a second node":   {func(s *state) { s.books[0].Attached["v"]["id-m"] = fakecsi.Attachment{} }, "attached to id-m, and nobody"},
		"a call goes on":     {func(s *state) { s.books[0].Running = []fakecsi.Call{{Volume: "v"}} }, "goes on"},
		"volume is missing":  {func(s *state) { s.volumes = nil }, "is not there"},
		"volume's finalizer": {func(s *state) { s.persistent = nil }, "PersistentVolume should be gone"},
		"two calls at once": {func(s *state) {
			s.books[0].Violations = []fakecsi.Violation{{Kind: fakecsi.ConcurrentCalls, Call: 2, Volume: "v"}}
		}, "ConcurrentCalls"},
		"violation by a knob": {func(s *state) {
			s.books[0].Violations = []fakecsi.Violation{{Kind: fakecsi.AttachedTwice, Volume: "v"}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := inOrder()
			c.change(&s)
			found := audit(s)
			if c.want == "" && len(found) > 0 {
				t.Errorf("found %v, want nothing", found)
			}
			if c.want == "" {
				return
			}
			for _, f := range found {
				if strings.Contains(f.Text, c.want) {
					return
				}
			}
			t.Errorf("found %v, want %q", found, c.want)
		})
	}
}

func TestGrowthIsThatOfOneProcess(t *testing.T) {
	young := Sample{Hub: "hub0", PID: 1, Goroutines: 100, Files: 30, Heap: 10 << 20}
	old := young
	old.Stretch = 9
	other := Sample{Hub: "hub1", PID: 2, Goroutines: 1000, Files: 300, Heap: 100 << 20}
	if f := grown([]Sample{young, other, old}); len(f) > 0 {
		t.Errorf("found %v, want nothing", f)
	}
	for want, grow := range map[string]func(*Sample){
		"goroutines":    func(s *Sample) { s.Goroutines += moreGoroutines + 1 },
		"open files":    func(s *Sample) { s.Files += moreFiles + 1 },
		"bytes of heap": func(s *Sample) { s.Heap += max(moreHeap, s.Heap/2) + 1 },
	} {
		fat := old
		grow(&fat)
		if f := grown([]Sample{young, other, fat}); len(f) != 1 || !strings.Contains(f[0].Text, want) {
			t.Errorf("found %v, want %s", f, want)
		}
	}
}

func TestASecondNodeIsAskedForOnlyWhereTheDriverWouldNotDetach(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	call := func(m fakecsi.Method, node string, end int, code codes.Code) fakecsi.Call {
		return fakecsi.Call{Method: m, Volume: "v", Node: node, Start: at(end), End: at(end), Code: code}
	}
	attached := call(fakecsi.ControllerPublishVolume, "a", 1, codes.OK)
	refused := call(fakecsi.ControllerUnpublishVolume, "a", 2, codes.Internal)
	for name, c := range map[string]struct {
		calls []fakecsi.Call
		kind  fakecsi.ViolationKind
		nodes []string
		want  int
	}{
		"refused":                     {[]fakecsi.Call{attached, refused}, fakecsi.AskedTwice, []string{"b", "a"}, 0},
		"not asked":                   {[]fakecsi.Call{attached}, fakecsi.AskedTwice, []string{"b", "a"}, 1},
		"refused before":              {[]fakecsi.Call{refused, call(fakecsi.ControllerPublishVolume, "a", 3, codes.OK)}, fakecsi.AskedTwice, []string{"b", "a"}, 1},
		"refused after":               {[]fakecsi.Call{attached, call(fakecsi.ControllerUnpublishVolume, "a", 5, codes.Internal)}, fakecsi.AskedTwice, []string{"b", "a"}, 1},
		"refused on one of two":       {[]fakecsi.Call{attached, refused}, fakecsi.AskedTwice, []string{"b", "a", "c"}, 1},
		"refused and attached anyway": {[]fakecsi.Call{attached, refused}, fakecsi.AttachedTwice, []string{"b", "a"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := fakecsi.Books{Calls: c.calls, Violations: []fakecsi.Violation{{Kind: c.kind, Time: at(4), Call: 9, Volume: "v", Nodes: c.nodes}}}
			if f := violations(b); len(f) != c.want {
				t.Errorf("found %v, want %d", f, c.want)
			}
		})
	}
}
