package attach

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Write is a write of a field that only attachers write into a VolumeAttachment, as its
// managedFields show it.
type Write struct {
	Manager string    // field manager, "csi-attacher" for example
	Time    time.Time // of the manager's last write, in whole seconds; zero if it changed nothing
	What    string    // WroteStatus, WroteFinalizer or WroteNodeID
}

// The values of Write.What.
const (
	WroteStatus    = "status"
	WroteFinalizer = "finalizer"
	WroteNodeID    = "node ID"
)

// ancientChanges is the manager under which the API server merges the oldest entries of an
// object that has more than ten. No client writes under that name.
const ancientChanges = "ancient-changes"

// ForeignWrite returns the last write to a field that attachers write, between two states of a
// VolumeAttachment, by a client other than the hub, and whether there is one. If before is nil or
// another object of that name, all writes to after count.
//
// It cannot see a removal, of which the API server keeps no trace, or a repetition within the same
// second. An entry that has fewer fields than before proves nothing: another manager may have taken the
// fields over. A new time alone counts only for the status, which only attachers write.
func ForeignWrite(before, after *storagev1.VolumeAttachment, finalizer string) (last Write, found bool) {
	if before == nil || before.UID != after.UID {
		before = &storagev1.VolumeAttachment{}
	}
	renumbered := after.Annotations[AnnotationNodeID] != before.Annotations[AnnotationNodeID]
	for i := range after.ManagedFields {
		entry := &after.ManagedFields[i]
		if entry.Manager == FieldManager || entry.Manager == ancientChanges {
			continue
		}
		is, was, again := attachersFields(entry), &fields{}, true
		if i := slices.IndexFunc(before.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == entry.Manager && e.Operation == entry.Operation && e.APIVersion == entry.APIVersion && e.Subresource == entry.Subresource
		}); i >= 0 { // the API server updates it for a write like this one
			old := &before.ManagedFields[i]
			was, again = attachersFields(old), !old.Time.Equal(entry.Time)
		}
		w := Write{Manager: entry.Manager}
		switch {
		case len(is.Status) > 0 && (again || len(was.Status) == 0):
			w.What = WroteStatus
		case is.hasFinalizer(finalizer) && !was.hasFinalizer(finalizer):
			w.What = WroteFinalizer
		case is.hasNodeID() && (renumbered || !was.hasNodeID()):
			w.What = WroteNodeID
		default:
			continue
		}
		if entry.Time != nil {
			w.Time = entry.Time.Time
		}
		if !found || !w.Time.Before(last.Time) {
			last, found = w, true
		}
	}
	return last, found
}

// PruneManagedFields returns the part of managedFields that ForeignWrite reads, for a cache of many objects: the fields
// that attachers write, and only entries of others that have some. It does not change the entries. Its result shares memory
// with other results and must not be changed.
func PruneManagedFields(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var pruned []metav1.ManagedFieldsEntry
	for i := range entries {
		if e, f := entries[i], attachersFields(&entries[i]); e.Manager != FieldManager && f.alone != nil {
			e.FieldsType, e.FieldsV1 = "", f.alone
			pruned = append(pruned, e)
		}
	}
	return slices.Clip(pruned)
}

// fields are the fields of an entry that attachers write, named as in FieldsV1: "f:" and the
// name of a field, "v:" and the value of an item of a set in JSON.
type fields struct {
	Metadata struct {
		Annotations fieldNames `json:"f:annotations,omitempty"`
		Finalizers  fieldNames `json:"f:finalizers,omitempty"`
	} `json:"f:metadata,omitzero"`
	Status fieldNames `json:"f:status,omitempty"`

	alone *metav1.FieldsV1 // the fields above; nil: there are none
}

// fieldNames is one level of FieldsV1, without the levels below it.
type fieldNames map[string]struct{}

const nodeIDField = "f:" + AnnotationNodeID

// maxKnownText bounds the texts that knownFields keeps.
const maxKnownText = 2048

// knownFields are the fields of entries by their text. Without it each change of a VolumeAttachment
// would parse them again, and each VolumeAttachment would have a copy.
var knownFields memo[string, *fields]

// attachersFields returns the fields of an entry that attachers write, none if the entry cannot be
// parsed. They are shared and must not be changed.
func attachersFields(entry *metav1.ManagedFieldsEntry) *fields {
	if entry.FieldsV1 == nil {
		return &fields{}
	}
	raw := entry.FieldsV1.GetRawBytes()
	if len(raw) > maxKnownText {
		return readFields(raw)
	}
	return knownFields.get(string(raw), func() *fields { return readFields(raw) })
}

func readFields(raw []byte) *fields {
	f := &fields{}
	if json.Unmarshal(raw, f) != nil {
		return &fields{}
	}
	maps.DeleteFunc(f.Metadata.Annotations, func(name string, _ struct{}) bool { return name != nodeIDField })
	maps.DeleteFunc(f.Metadata.Finalizers, func(name string, _ struct{}) bool {
		value, err := strconv.Unquote(strings.TrimPrefix(name, "v:"))
		return err != nil || !strings.HasPrefix(value, FinalizerPrefix)
	})
	if len(f.Status)+len(f.Metadata.Finalizers)+len(f.Metadata.Annotations) == 0 {
		return &fields{}
	}
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // maps of names always encode
	}
	f.alone = metav1.NewFieldsV1(string(text))
	return f
}

func (f *fields) hasNodeID() bool {
	_, has := f.Metadata.Annotations[nodeIDField]
	return has
}

func (f *fields) hasFinalizer(finalizer string) bool {
	_, has := f.Metadata.Finalizers["v:"+strconv.Quote(finalizer)]
	return has
}
