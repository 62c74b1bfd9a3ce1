package crash

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/safety"
)

// objects are those of the API server at one moment, by name.
type objects struct {
	attachments map[string]storagev1.VolumeAttachment
	volumes     map[string]corev1.PersistentVolume
}

// world returns the objects and the storage of the trial as the rules look at them.
func (t *trial) world(o objects) (w safety.World) {
	finalizer := attach.Finalizer(t.driver())
	for name, va := range o.attachments {
		if key, _ := keyOf(name); key == t.key {
			w.Attachments = append(w.Attachments, safety.AttachmentOf(&va, finalizer))
		}
	}
	for name, pv := range o.volumes {
		if key, _ := keyOf(name); key == t.key {
			w.Volumes = append(w.Volumes, safety.VolumeOf(&pv, finalizer))
		}
	}
	w.Published = t.backend.Books().Places()
	return w
}

// untrue returns what is not so while a process works or has just been killed: a status that is not true, and a volume that is
// attached although no VolumeAttachment with a finalizer stands for it.
// Two triggers make such a difference behind the process, and the process can mend it only after its next listing: a
// status may outlive an attachment that the storage lost, and an attachment may outlive a removed VolumeAttachment.
func (t *trial) untrue(o objects) error {
	var statuses, guards error
	if !t.Scenario.loses {
		statuses = t.world(o).Statuses()
	}
	if !t.Scenario.dangling {
		guards = t.world(o).Guarded()
	}
	return errors.Join(statuses, guards)
}

// missing returns how objects and books differ from the wish.
func (t *trial) missing(o objects, w wish) (missing []string) {
	rest := safety.Rest{World: t.world(o), Wants: map[string]safety.Want{}, Keeps: []string{}, Running: t.backend.Books().RunningCalls()}
	for va, at := range w.attached {
		rest.Wants[t.name(va)] = safety.Want{At: safety.Place{Driver: t.driver(), Volume: t.name(at.volume), Node: t.name(at.node)}}
	}
	for _, v := range w.volumes {
		rest.Keeps = append(rest.Keeps, t.name(v))
	}
	for _, err := range rest.Settled() {
		missing = append(missing, err.Error())
	}
	return missing
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
		if err := safety.AtMost(c, once[c], needed); err != nil {
			needless = append(needless, err.Error())
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
