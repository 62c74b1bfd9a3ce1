package crash

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// objects are those of the API server at one moment, by name.
type objects struct {
	attachments map[string]storagev1.VolumeAttachment
	volumes     map[string]corev1.PersistentVolume
}

// untrue returns what objects and books say that is not so while a process works or has just been killed: a status
// that is not true, and a volume that is attached although no VolumeAttachment with a finalizer stands for it.
// Two triggers make such a difference behind the process, and the process can mend it only after its next listing: a
// status may outlive an attachment that the storage lost, and an attachment may outlive a removed VolumeAttachment.
func (t *trial) untrue(o objects) (untrue []string) {
	books := t.backend.Books()
	stands := map[call]bool{}
	for name, c := range t.named(t.Scenario.claims) {
		va, exists := o.attachments[name]
		published := false
		for _, node := range c.nodes {
			published = published || books.IsAttached(c.volume, node)
			stands[call{volume: c.volume, node: node}] = exists && len(va.Finalizers) > 0 || !exists && t.Scenario.unowned
		}
		// A detach makes the status untrue until its finalizer goes, as with csi-attacher: status.attached stays.
		if exists && va.Status.Attached && va.DeletionTimestamp == nil && !published && !t.Scenario.loses {
			untrue = append(untrue, name+" says attached: true, and the storage has the volume nowhere")
		}
	}
	for at := range attachedIn(books) {
		if !stands[at] {
			untrue = append(untrue, fmt.Sprintf("%s is attached to %s, and no VolumeAttachment with a finalizer stands for it", at.volume, at.node))
		}
	}
	return untrue
}

// missing returns how objects and books differ from the wish.
func (t *trial) missing(o objects, w wish) (missing []string) {
	want := map[call]bool{}
	for va, at := range w.attached {
		want[call{volume: t.name(at.volume), node: t.name(at.node)}] = true
		if now, ok := o.attachments[t.name(va)]; !ok || !now.Status.Attached || len(now.Finalizers) == 0 {
			missing = append(missing, va+" is not attached with a finalizer")
		}
	}
	for name := range o.attachments {
		key, own := keyOf(name)
		if _, wanted := w.attached[own]; key == t.key && !wanted {
			missing = append(missing, own+" still exists")
		}
	}
	for name := range o.volumes {
		if key, own := keyOf(name); key == t.key && !slices.Contains(w.volumes, own) {
			missing = append(missing, "PersistentVolume "+own+" still exists")
		}
	}
	have := attachedIn(t.backend.Books())
	if !maps.Equal(have, want) {
		missing = append(missing, fmt.Sprintf("the storage has %v attached, want %v", have, want))
	}
	return missing
}

func attachedIn(b fakecsi.Books) map[call]bool {
	attached := map[call]bool{}
	for volume, nodes := range b.Attached {
		for node := range nodes {
			attached[call{volume: volume, node: node}] = true
		}
	}
	return attached
}

// once returns how often each call has succeeded so far.
func (t *trial) once() map[string]int {
	once := map[string]int{}
	for _, c := range t.backend.Books().Calls {
		if (string(c.Method) == publish || string(c.Method) == unpublish) && c.Code == codes.OK {
			once[t.describe(call{string(c.Method), c.Volume, c.Node})]++
		}
	}
	return once
}

func (t *trial) describe(c call) string {
	return fmt.Sprintf("%s %s %s", c.method, strings.TrimPrefix(c.volume, t.key+"-"), strings.TrimPrefix(c.node, t.key+"-"))
}

// needless returns the calls that succeeded more often than was needed. A call is needed as often as without a crash.
// It is needed once more if it had succeeded when the process was killed, and no write had recorded that: neither
// status.attached of the VolumeAttachment, nor its finalizer that goes, nor its note of another node. So an unpublish of
// what nobody owns may be repeated: nothing records it. A drift repair may not: the driver's list shows the volume.
func (t *trial) needless() (needless []string) {
	once := t.once()
	for _, c := range slices.Sorted(maps.Keys(once)) {
		needed := t.Once[c]
		if parts := strings.Fields(c); !t.Scenario.loses && t.tapes[t.victim()].repeatable(call{parts[0], t.name(parts[1]), t.name(parts[2])}) {
			needed++
		}
		if once[c] > needed {
			needless = append(needless, fmt.Sprintf("%s succeeded %d times, needed %d", c, once[c], needed))
		}
	}
	return needless
}

// violations returns what the books say that a correct caller never does.
func (t *trial) violations() (violations []string) {
	for _, v := range t.backend.Books().Violations {
		violations = append(violations, fmt.Sprintf("violation %+v", v))
	}
	return violations
}
