package volume

import (
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// By core.md, F5: what has its place on a full node, or may have it, does not wait for one.
func TestOnlyAnAttachWithoutAPlaceWaitsForOne(t *testing.T) {
	here, elsewhere := attach.Target{VolumeHandle: "v", NodeID: "n"}, attach.Target{VolumeHandle: "v", NodeID: "before"}
	believed := func(b Belief, at attach.Target) Publication {
		return Publication{Record: attach.Record{Target: at}, Belief: b}
	}
	refused := believed(Uncertain, here)
	refused.NodeFull = true
	for name, c := range map[string]struct {
		believed       Publication
		lost, dangling bool
		noted          bool
		want           bool
	}{
		"nothing is known":                         {want: true},
		"the object notes it":                      {noted: true, want: false},
		"published":                                {believed: believed(Published, here), want: false},
		"recorded":                                 {believed: believed(Recorded, here), want: false},
		"called without an answer":                 {believed: believed(Uncertain, here), want: false},
		"refused because the node was full":        {believed: refused, noted: true, want: true},
		"unpublished":                              {believed: believed(Unpublished, here), noted: true, want: true},
		"recorded at the node ID of before":        {believed: believed(Recorded, elsewhere), want: true},
		"dangling there":                           {dangling: true, want: false},
		"dangling there, and refused":              {believed: refused, dangling: true, want: false},
		"lost":                                     {believed: believed(Recorded, here), lost: true, noted: true, want: true},
		"lost, and published again but not marked": {believed: believed(Published, here), lost: true, want: false},
	} {
		table := NewTable("f")
		if c.believed.Belief != Unknown {
			table.attachments["va"] = &Attachment{Publication: c.believed}
		}
		if c.dangling {
			table.dangling[here] = &Dangling{}
		}
		if got := (*beliefs)(table).NeedsPlace(queue.AttachmentKey("va"), queue.Place{Target: here, Node: "n", Noted: c.noted}, c.lost); got != c.want {
			t.Errorf("%s: it needs a place: %v, want %v", name, got, c.want)
		}
	}
}
