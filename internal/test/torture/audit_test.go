package torture

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/safety"
)

// inOrder is a state in which everything holds: volume v is asked for on node n, and is there.
func inOrder() state {
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "v-p0.n", UID: "1", Finalizers: []string{attach.Finalizer("d")}}}
	va.Spec.Attacher, va.Status.Attached = "d", true
	return state{
		wanted:      map[string]safety.Want{"v-p0.n": {UID: "1", At: place{Driver: "d", Volume: "v", Node: "id-n"}}},
		attachments: []*storagev1.VolumeAttachment{va},
		persistent:  []string{"v"},
		volumes:     []*corev1.PersistentVolume{{ObjectMeta: metav1.ObjectMeta{Name: "v"}}},
		books:       []fakecsi.Books{{Driver: "d", Attached: map[string]map[string]fakecsi.Attachment{"v": {"id-n": {}}}}},
	}
}

// Package safety has the rules. Here each of what an audit looks at reaches them, and finds its volume.
func TestAuditFindsWhatDoesNotHold(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*state)
		want   string // empty: nothing
	}{
		"all holds":             {func(*state) {}, ""},
		"a pod has not settled": {func(s *state) { s.moving = []string{"v"} }, "should be gone by now"},
		"status is behind":      {func(s *state) { s.attachments[0].Status.Attached = false }, "is not attached"},
		"no finalizer":          {func(s *state) { s.attachments[0].Finalizers = nil }, "has no finalizer"},
		"nobody asks":           {func(s *state) { s.wanted, s.books[0].Attached = nil, nil }, "though nobody asks for it"},
		"storage has it not":    {func(s *state) { s.books[0].Attached = nil }, "the driver does not have it there"},
		"of another driver":     {func(s *state) { s.books[0].Driver = "e" }, "the driver does not have it there"},
		"a call goes on":        {func(s *state) { s.books[0].Running = []fakecsi.Call{{Method: publish, Volume: "v"}} }, "goes on"},
		"volume's finalizer":    {func(s *state) { s.persistent = nil }, "PersistentVolume v should be gone"},
		"a violation": {func(s *state) {
			s.books[0].Violations = []fakecsi.Violation{{Rule: safety.OneCall, Call: 2, Volume: "v"}}
		}, "OneCall"},
	} {
		t.Run(name, func(t *testing.T) {
			s := inOrder()
			c.change(&s)
			found := audit(s)
			if (c.want == "") != (len(found) == 0) || c.want != "" && (found[0].About != "v" || !strings.Contains(found[0].Text, c.want)) {
				t.Errorf("found %v, want %q", found, c.want)
			}
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
