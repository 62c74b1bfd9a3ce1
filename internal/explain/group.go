package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// Group is VolumeAttachments with one cause, or without trouble.
type Group struct {
	Health status.HealthState `json:"health"` // the worst of them
	// Cause is that of the first VolumeAttachment. nil: all are attached.
	Cause   *Finding    `json:"cause,omitempty"`
	Volumes []VolumeRef `json:"volumes"` // the worst first
}

// VolumeRef names a VolumeAttachment and its volume.
type VolumeRef struct {
	VolumeAttachment string `json:"volumeAttachment"`
	Driver           string `json:"driver"`
	Node             string `json:"node"`
	PersistentVolume string `json:"persistentVolume,omitempty"`
	Claim            string `json:"claim,omitempty"` // namespace/name
	Age                     // since the attach or the detach was asked for
}

func (v *Volume) ref(now time.Time) VolumeRef {
	r := VolumeRef{VolumeAttachment: v.Attachment.Value().Name, Driver: v.Driver, Node: v.NodeName, PersistentVolume: v.VolumeName, Age: ageOf(v.asked(), now)}
	if v.ClaimName != "" {
		r.Claim = v.Namespace + "/" + v.ClaimName
	}
	return r
}

// groups explains the volumes of the facts and collapses equal causes.
func groups(f *Facts) []Group {
	var all []Group
	at := map[string]int{}
	add := func(key string, v *Volume, cause *Finding) {
		i, known := at[key]
		if !known {
			i = len(all)
			at[key] = i
			all = append(all, Group{Health: v.Health, Cause: cause})
		} else if cause != nil && len(all[i].Volumes) < mostInGroup { // each may have commands of its own
			all[i].Cause.Commands = union(all[i].Cause.Commands, cause.Commands)
		}
		all[i].Volumes = append(all[i].Volumes, v.ref(f.Now))
	}
	for i := range f.Volumes {
		v, r := &f.Volumes[i], explainVolume(f, i)
		switch {
		case r.Result == Attached && f.Question.Kind == Node:
			v.Health = status.Fine
			add("", v, nil)
		case r.Result == Attached: // it has been attached since, or needs no attach
		case r.Stop == nil:
			stop := found(diagnosis.NoReasonKnown, ref(VolumeAttachment, "", v.Attachment.Value().Name), "what the answer needs could not be read", "")
			add("unknown", v, &stop)
		default:
			add(v.causeKey(*r.Stop), v, r.Stop)
		}
	}
	for i := range f.Settled {
		add("", &f.Settled[i], nil)
	}
	slices.SortStableFunc(all, func(a, b Group) int {
		return cmp.Or(a.Health.Compare(b.Health), a.Volumes[0].Since.Compare(b.Volumes[0].Since))
	})
	return all
}

// union returns the commands of both, each once, nil if there are none.
func union(some, more []string) []string {
	for _, command := range more {
		if !slices.Contains(some, command) {
			some = append(some, command)
		}
	}
	return some
}

// causeKey returns what is equal for volumes with the same cause: the finding without the names of the volume.
func (v *Volume) causeKey(stop Finding) string {
	if stop.Verdict == diagnosis.CallUnanswered || stop.Verdict == diagnosis.CallInFlight { // their texts have tries and nodes
		return string(stop.Verdict) + "\n" + v.Driver
	}
	var names []string
	for _, name := range []string{v.Attachment.Value().Name, v.VolumeName, v.handle(), v.ClaimName} {
		if name != "" {
			names = append(names, name, "…")
		}
	}
	return string(stop.Verdict) + "\n" + strings.NewReplacer(names...).Replace(stop.Object+"\n"+stop.cause)
}
