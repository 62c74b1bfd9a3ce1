package attach

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Write says that somebody has written what only an attacher writes into a
// VolumeAttachment, as its managedFields tell.
type Write struct {
	Manager string    // field manager, "csi-attacher" for example
	Time    time.Time // of the manager's last write, in whole seconds; zero if it changed nothing
	What    string    // WroteStatus, WroteFinalizer or WroteNodeID
}

// What attachers write into a VolumeAttachment.
const (
	WroteStatus    = "status"
	WroteFinalizer = "finalizer"
	WroteNodeID    = "node ID"
)

// ancientChanges is the name under which the API server puts the oldest managers of
// an object together, when they are more than ten. Nobody writes by that name.
const ancientChanges = "ancient-changes"

// AttacherWrites returns who last wrote what of a VolumeAttachment, the hub itself
// included. Creating the object and writing its labels or other finalizers is none
// of it, and nor is what somebody else has overwritten since.
func AttacherWrites(va *storagev1.VolumeAttachment, finalizer string) []Write {
	var writes []Write
	for i := range va.ManagedFields {
		entry := &va.ManagedFields[i]
		fields := parseFields(entry)
		if len(fields.Status) > 0 {
			writes = append(writes, writeOf(entry, WroteStatus))
		}
		if fields.hasFinalizer(finalizer) {
			writes = append(writes, writeOf(entry, WroteFinalizer))
		}
		if fields.hasNodeID() {
			writes = append(writes, writeOf(entry, WroteNodeID))
		}
	}
	return writes
}

// ForeignWrite says whether somebody other than the hub has written what attachers
// write between two states of a VolumeAttachment, and returns the last such write.
// Where before is nil or another object of that name, all that was ever written counts.
//
// What cannot be seen: a removal, of which the API server keeps no trace, and a
// repetition within the same second.
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

// writtenSince says what the manager of an entry of after has written since before, ""
// for nothing. That an entry has shrunk proves nothing: another manager may have taken
// over what it held. And a new time alone only counts for the status: the rest of the
// object has fields that are no attacher's.
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

// PruneManagedFields returns what AttacherWrites and ForeignWrite look at, for a
// cache of many objects: entries that hold nothing an attacher writes are left out,
// and of the fields of the others only those stay. What it was given is not changed;
// what it returns shares memory with other results and must not be changed.
func PruneManagedFields(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	n := 0
	for i := range entries {
		if !parseFields(&entries[i]).empty() {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	pruned := make([]metav1.ManagedFieldsEntry, 0, n) // without append's reserve
	for i := range entries {
		if fields := parseFields(&entries[i]); !fields.empty() {
			pruned = append(pruned, sharedEntry(&entries[i], fields))
		}
	}
	return pruned
}

func writeOf(entry *metav1.ManagedFieldsEntry, what string) Write {
	w := Write{Manager: entry.Manager, What: what}
	if entry.Time != nil {
		w.Time = entry.Time.Time
	}
	return w
}

// entryLike returns the entry that the API server continues as this one, nil if there
// is none.
func entryLike(entries []metav1.ManagedFieldsEntry, like *metav1.ManagedFieldsEntry) *metav1.ManagedFieldsEntry {
	for i := range entries {
		e := &entries[i]
		if e.Manager == like.Manager && e.Operation == like.Operation && e.APIVersion == like.APIVersion && e.Subresource == like.Subresource {
			return e
		}
	}
	return nil
}

// fields are those of an entry that attachers write, as FieldsV1 has them: a field is
// "f:" and its name, an item of a set is "v:" and its value in JSON.
type fields struct {
	Metadata struct {
		Annotations fieldNames `json:"f:annotations,omitempty"`
		Finalizers  fieldNames `json:"f:finalizers,omitempty"`
	} `json:"f:metadata,omitzero"`
	Status fieldNames `json:"f:status,omitempty"`

	text string // of all that, as FieldsV1
}

// fieldNames is one level of FieldsV1, without what is below it. It marshals as a
// level of leaves.
type fieldNames map[string]struct{}

const nodeIDField = "f:" + AnnotationNodeID

const (
	// maxKnown bounds how many texts of fields are kept with what they say, and maxKnownText
	// their length. There are some for each driver; the rest is somebody's play.
	maxKnown     = 4096
	maxKnownText = 2048
)

// known is what the fields of entries say, by their text: few of them differ among
// thousands of VolumeAttachments, whose every change would have them read again.
var known struct {
	sync.RWMutex
	fields map[string]*fields // never changed; guarded by RWMutex
}

// parseFields returns what matters of an entry, which is not to be changed; nothing of one
// that cannot be read.
func parseFields(entry *metav1.ManagedFieldsEntry) *fields {
	if entry.FieldsV1 == nil {
		return &fields{}
	}
	raw := entry.FieldsV1.GetRawBytes()
	known.RLock()
	f := known.fields[string(raw)]
	known.RUnlock()
	if f != nil {
		return f
	}
	f = readFields(raw)
	known.Lock()
	defer known.Unlock()
	if known.fields == nil {
		known.fields = map[string]*fields{}
	}
	if len(known.fields) < maxKnown && len(raw) <= maxKnownText {
		known.fields[string(raw)] = f
	}
	return f
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
		panic(err) // it is made of maps of names only
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

// within says whether all of a are in b.
func within(a, b fieldNames) bool {
	for name := range a {
		if _, ok := b[name]; !ok {
			return false
		}
	}
	return true
}

// maxShared bounds what sharedEntry remembers. There are some for each driver; the rest
// is somebody's play with finalizers.
const maxShared = 4096

// shared are the parts of pruned entries besides the time: few of them differ among
// thousands of VolumeAttachments.
var shared struct {
	sync.Mutex
	entries map[entryKind]metav1.ManagedFieldsEntry // guarded by Mutex
}

// entryKind is an entry without its time, comparable.
type entryKind struct {
	manager, operation, apiVersion, subresource, fields string
}

// sharedEntry returns an entry reduced to its fields, with the strings and fields of
// an equal one that was made before.
func sharedEntry(entry *metav1.ManagedFieldsEntry, f *fields) metav1.ManagedFieldsEntry {
	kind := entryKind{entry.Manager, string(entry.Operation), entry.APIVersion, entry.Subresource, f.text}
	shared.Lock()
	defer shared.Unlock()
	known, ok := shared.entries[kind]
	if !ok {
		known = metav1.ManagedFieldsEntry{Manager: kind.manager, Operation: entry.Operation, APIVersion: kind.apiVersion,
			Subresource: kind.subresource, FieldsV1: metav1.NewFieldsV1(kind.fields)}
		if shared.entries == nil {
			shared.entries = map[entryKind]metav1.ManagedFieldsEntry{}
		}
		if len(shared.entries) < maxShared {
			shared.entries[kind] = known
		}
	}
	known.Time = entry.Time
	return known
}
