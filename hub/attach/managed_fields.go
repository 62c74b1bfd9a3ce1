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
// second.
func ForeignWrite(before, after *storagev1.VolumeAttachment, finalizer string) (Write, bool) {
	if before == nil || before.UID != after.UID {
		before = &storagev1.VolumeAttachment{}
	}
	var last Write
	found := false
	for i := range after.ManagedFields {
		entry := &after.ManagedFields[i]
		if entry.Manager == FieldManager || entry.Manager == ancientChanges {
			continue
		}
		what := writtenSince(before, after, entry, finalizer)
		if what == "" {
			continue
		}
		if w := writeOf(entry, what); !found || !w.Time.Before(last.Time) {
			last, found = w, true
		}
	}
	return last, found
}

// writtenSince returns what the manager of an entry of after has written since before, "" for
// nothing. An entry that has fewer fields than before proves nothing: another manager may have
// taken the fields over. A new time alone counts only for the status, which only attachers write.
func writtenSince(before, after *storagev1.VolumeAttachment, entry *metav1.ManagedFieldsEntry, finalizer string) string {
	was, again := &fields{}, true
	if old := entryLike(before.ManagedFields, entry); old != nil {
		was, again = parseFields(old), !old.Time.Equal(entry.Time)
	}
	is := parseFields(entry)
	if len(is.Status) > 0 && (again || !within(is.Status, was.Status)) {
		return WroteStatus
	}
	if is.hasFinalizer(finalizer) && !was.hasFinalizer(finalizer) {
		return WroteFinalizer
	}
	changed := after.Annotations[AnnotationNodeID] != before.Annotations[AnnotationNodeID]
	if is.hasNodeID() && (changed || !was.hasNodeID()) {
		return WroteNodeID
	}
	return ""
}

// PruneManagedFields returns the part of managedFields that ForeignWrite reads, for a cache of many objects: the fields
// that attachers write, and only entries of others that have some. It does not change the entries. Its result shares memory
// with other results and must not be changed.
func PruneManagedFields(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var pruned []metav1.ManagedFieldsEntry
	for i := range entries {
		if f := parseFields(&entries[i]); entries[i].Manager != FieldManager && !f.empty() {
			pruned = append(pruned, sharedEntry(&entries[i], f))
		}
	}
	return slices.Clip(pruned)
}

func writeOf(entry *metav1.ManagedFieldsEntry, what string) Write {
	w := Write{Manager: entry.Manager, What: what}
	if entry.Time != nil {
		w.Time = entry.Time.Time
	}
	return w
}

// entryLike returns the entry that the API server updates for a write like this one, nil if
// there is none.
func entryLike(entries []metav1.ManagedFieldsEntry, like *metav1.ManagedFieldsEntry) *metav1.ManagedFieldsEntry {
	for i := range entries {
		e := &entries[i]
		if e.Manager == like.Manager && e.Operation == like.Operation && e.APIVersion == like.APIVersion && e.Subresource == like.Subresource {
			return e
		}
	}
	return nil
}

// fields are the fields of an entry that attachers write, named as in FieldsV1: "f:" and the
// name of a field, "v:" and the value of an item of a set in JSON.
type fields struct {
	Metadata struct {
		Annotations fieldNames `json:"f:annotations,omitempty"`
		Finalizers  fieldNames `json:"f:finalizers,omitempty"`
	} `json:"f:metadata,omitzero"`
	Status fieldNames `json:"f:status,omitempty"`

	text string // the fields above, encoded as FieldsV1
}

// fieldNames is one level of FieldsV1, without the levels below it.
type fieldNames map[string]struct{}

const nodeIDField = "f:" + AnnotationNodeID

// maxKnownText bounds the texts that knownFields keeps.
const maxKnownText = 2048

// knownFields are the fields of entries by their text. Without it each change of a VolumeAttachment
// would parse them again.
var knownFields memo[string, *fields]

// parseFields returns the fields of an entry that attachers write, none if the entry cannot be
// parsed. They are shared and must not be changed.
func parseFields(entry *metav1.ManagedFieldsEntry) *fields {
	if entry.FieldsV1 == nil {
		return &fields{}
	}
	raw := entry.FieldsV1.GetRawBytes()
	knownFields.mu.RLock()
	f, known := knownFields.results[string(raw)] // converted within the brackets, raw is not copied
	knownFields.mu.RUnlock()
	switch {
	case known:
		return f
	case len(raw) > maxKnownText:
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
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // maps of names always encode
	}
	f.text = string(text)
	return f
}

func (f *fields) empty() bool {
	return len(f.Status) == 0 && len(f.Metadata.Finalizers) == 0 && len(f.Metadata.Annotations) == 0
}

func (f *fields) hasNodeID() bool {
	_, has := f.Metadata.Annotations[nodeIDField]
	return has
}

func (f *fields) hasFinalizer(finalizer string) bool {
	if len(f.Metadata.Finalizers) == 0 {
		return false
	}
	_, has := f.Metadata.Finalizers["v:"+strconv.Quote(finalizer)]
	return has
}

// within reports whether all names of a are in b.
func within(a, b fieldNames) bool {
	for name := range a {
		if _, ok := b[name]; !ok {
			return false
		}
	}
	return true
}

// knownEntries are pruned entries without their time.
var knownEntries memo[entryKind, metav1.ManagedFieldsEntry]

// entryKind is an entry without its time.
type entryKind struct {
	manager, operation, apiVersion, subresource, fields string
}

func kindOf(entry *metav1.ManagedFieldsEntry, f *fields) entryKind {
	return entryKind{entry.Manager, string(entry.Operation), entry.APIVersion, entry.Subresource, f.text}
}

// sharedEntry returns an entry with nothing but these fields. It shares the strings and fields of an equal entry that was
// returned before.
func sharedEntry(entry *metav1.ManagedFieldsEntry, f *fields) metav1.ManagedFieldsEntry {
	kind := kindOf(entry, f)
	shared := knownEntries.get(kind, func() metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: kind.manager, Operation: metav1.ManagedFieldsOperationType(kind.operation),
			APIVersion: kind.apiVersion, Subresource: kind.subresource, FieldsV1: metav1.NewFieldsV1(kind.fields)}
	})
	shared.Time = entry.Time
	return shared
}
