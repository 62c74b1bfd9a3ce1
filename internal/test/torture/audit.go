package torture

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/safety"
)

// Finding is one fault that an audit has found.
type Finding struct {
	About string    `json:"about"` // a volume, a driver or a hub
	Text  string    `json:"text"`
	at    time.Time // when it happened; zero: it is so now
	lines []line    // of the history around it
}

// state is what an audit looks at, after all faults are healed.
type state struct {
	moving      []string               // volumes of pods that are still in a move
	wanted      map[string]safety.Want // by name of VolumeAttachment
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
	rest := safety.Rest{Wants: maps.Clone(s.wanted), Keeps: append([]string{}, s.persistent...)}
	if rest.Wants == nil {
		rest.Wants = map[string]safety.Want{}
	}
	for _, va := range s.attachments {
		c := safety.AttachmentOf(va, attach.Finalizer(va.Spec.Attacher))
		c.Volume, _, _ = strings.Cut(va.Name, "-p")
		rest.Attachments = append(rest.Attachments, c)
	}
	for _, pv := range s.volumes {
		rest.Volumes = append(rest.Volumes, safety.VolumeOf(pv, ""))
	}
	for _, b := range s.books {
		rest.Published = slices.Concat(rest.Published, b.Places())
		rest.Running = slices.Concat(rest.Running, b.RunningCalls())
	}
	for _, err := range rest.Settled() {
		var b *safety.Broken
		if errors.As(err, &b) {
			f = append(f, Finding{About: b.About, Text: b.Text})
		}
	}
	return append(f, allViolations(s.books)...)
}

// allViolations returns what hubs must never do, whatever goes wrong.
func allViolations(books []fakecsi.Books) []Finding {
	var f []Finding
	for _, b := range books {
		for _, v := range b.Violations {
			text := fmt.Sprintf("%s at %s, call %d, nodes %v: %s", v.Rule, v.Time.Format("15:04:05.000"), v.Call, v.Nodes, v.Detail)
			f = append(f, Finding{About: v.Volume, Text: text, at: v.Time})
		}
	}
	return f
}
