package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// Finding is one fault that an audit has found.
type Finding struct {
	About string    `json:"about"` // a volume, a driver or a hub
	Text  string    `json:"text"`
	at    time.Time // when it happened; zero: it is so now
	lines []line    // of the history around it
}

// want is what one pod asks for.
type want struct {
	attachment string // name of the VolumeAttachment
	uid        types.UID
	volume     string
	driver     string
	nodeID     string
}

// state is what an audit looks at, after all faults are healed.
type state struct {
	moving      []string        // volumes of pods that are still in a move
	wanted      map[string]want // by name of VolumeAttachment
	attachments []*storagev1.VolumeAttachment
	persistent  []string // names of the PersistentVolumes that should exist
	volumes     []*corev1.PersistentVolume
	books       []fakecsi.Books
}

// audit returns the findings of a state. It checks that exactly what the pods ask for is attached,
// that each status agrees with the books, and that deleted objects have left nothing behind.
func audit(s state) []Finding {
	var f []Finding
	for _, v := range s.moving {
		f = append(f, Finding{About: v, Text: "its VolumeAttachment should be gone by now"})
	}
	f = append(f, auditAttachments(s)...)
	f = append(f, auditVolumes(s)...)
	for _, b := range s.books {
		f = append(f, auditBooks(s, b)...)
	}
	return append(f, allViolations(s.books)...)
}

func auditAttachments(s state) []Finding {
	var f []Finding
	found := map[string]bool{}
	for _, va := range s.attachments {
		w, ok := s.wanted[va.Name]
		about, _, _ := strings.Cut(va.Name, "-p")
		finding := func(format string, args ...any) {
			f = append(f, Finding{About: about, Text: "VolumeAttachment " + va.Name + " " + fmt.Sprintf(format, args...)})
		}
		switch {
		case !ok || va.UID != w.uid:
			finding("is there, though nobody asks for it any more; finalizers %v", va.Finalizers)
			continue
		case va.DeletionTimestamp != nil:
			finding("is being deleted, though it is asked for")
		case !va.Status.Attached:
			finding("is not attached: %+v", va.Status.AttachError)
		case va.Status.AttachError != nil || va.Status.DetachError != nil:
			finding("is attached and still has an error: %+v %+v", va.Status.AttachError, va.Status.DetachError)
		case !slices.Contains(va.Finalizers, attach.Finalizer(w.driver)):
			finding("is attached and has no finalizer")
		}
		found[va.Name] = true
	}
	for name, w := range s.wanted {
		if !found[name] {
			f = append(f, Finding{About: w.volume, Text: "VolumeAttachment " + name + " is asked for and is not there"})
		}
	}
	return f
}

// auditVolumes checks that exactly the expected PersistentVolumes exist, and that none of them is
// being deleted.
func auditVolumes(s state) []Finding {
	var f []Finding
	there := map[string]bool{}
	for _, pv := range s.volumes {
		there[pv.Name] = true
		if pv.DeletionTimestamp != nil || !slices.Contains(s.persistent, pv.Name) {
			f = append(f, Finding{About: pv.Name, Text: fmt.Sprintf("PersistentVolume should be gone, and has finalizers %v", pv.Finalizers)})
		}
	}
	for _, name := range s.persistent {
		if !there[name] {
			f = append(f, Finding{About: name, Text: "PersistentVolume is not there"})
		}
	}
	return f
}

// auditBooks compares what the storage has attached with what the pods ask for.
func auditBooks(s state, b fakecsi.Books) []Finding {
	var f []Finding
	for _, c := range b.Running {
		if c.Volume != "" {
			f = append(f, Finding{About: c.Volume, Text: fmt.Sprintf("call %d %s on %s goes on", c.ID, c.Method, c.Node)})
		}
	}
	wanted := map[fakecsi.VolumeNode]bool{}
	for _, w := range s.wanted {
		if w.driver != b.Driver {
			continue
		}
		wanted[fakecsi.VolumeNode{Volume: w.volume, Node: w.nodeID}] = true
		if !b.IsAttached(w.volume, w.nodeID) {
			f = append(f, Finding{About: w.volume, Text: fmt.Sprintf("is asked for on %s, and the storage has it on %v", w.nodeID, nodesOf(b, w.volume))})
		}
	}
	for volume := range b.Attached {
		for _, node := range nodesOf(b, volume) {
			if !wanted[fakecsi.VolumeNode{Volume: volume, Node: node}] {
				f = append(f, Finding{About: volume, Text: fmt.Sprintf("is attached to %s, and nobody asks for that", node)})
			}
		}
	}
	return f
}

func nodesOf(b fakecsi.Books, volume string) []string {
	var nodes []string
	for node := range b.Attached[volume] {
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	return nodes
}

// violations returns what a hub must never do, whatever goes wrong: make two calls at once for one
// volume (for one node of a multi-node volume), ask for a volume on a second node, or use a
// capability that the driver does not announce.
func violations(b fakecsi.Books) []Finding {
	var f []Finding
	for _, v := range b.Violations {
		byKnob := v.Call == 0
		if !byKnob && !(v.Kind == fakecsi.AskedTwice && wouldNotDetach(b, v)) {
			text := fmt.Sprintf("%s at %s, call %d, nodes %v: %s", v.Kind, v.Time.Format("15:04:05.000"), v.Call, v.Nodes, v.Detail)
			f = append(f, Finding{About: v.Volume, Text: text, at: v.Time})
		}
	}
	return f
}

// wouldNotDetach reports whether the driver had refused to detach the volume from each other node
// before the hub asked for it on a second one. The driver decides then.
func wouldNotDetach(b fakecsi.Books, v fakecsi.Violation) bool {
	last := map[string]fakecsi.Call{} // by node
	for _, c := range b.Calls {
		if c.Volume == v.Volume && c.End.Before(v.Time) && !c.End.Before(last[c.Node].End) {
			last[c.Node] = c
		}
	}
	return !slices.ContainsFunc(v.Nodes[1:], func(other string) bool {
		c := last[other]
		return c.Method != fakecsi.ControllerUnpublishVolume || c.Code == codes.OK
	})
}

func allViolations(books []fakecsi.Books) []Finding {
	var f []Finding
	for _, b := range books {
		f = append(f, violations(b)...)
	}
	return f
}
