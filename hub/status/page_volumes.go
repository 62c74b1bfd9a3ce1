package status

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// volumeTable has VolumeAttachments as rows of a table.
type volumeTable struct {
	frame
	Rows      []volumeRow
	OneDriver bool // all rows are of one driver: the column is left out
}

// volumeRow is a VolumeAttachment, or several that wait for the same reason.
type volumeRow struct {
	Attachment                     // the worst of them
	Others     []Attachment        // the worst first
	Why        diagnosis.Diagnosis // zero if no operation is due
}

// mostOthers is how many of the Others a row names.
const mostOthers = 3

// Count returns how many VolumeAttachments the row stands for.
func (r volumeRow) Count() int { return 1 + len(r.Others) }

// Named returns those of the Others that the row names.
func (r volumeRow) Named() []Attachment { return r.Others[:min(len(r.Others), mostOthers)] }

// OtherNodes returns how many nodes but Node the VolumeAttachments of the row are for.
func (r volumeRow) OtherNodes() int {
	others := map[string]bool{}
	for _, a := range r.Others {
		if a.Node != r.Node {
			others[a.Node] = true
		}
	}
	return len(others)
}

// Title returns how people know the volume: its claim, or else the best name that is known.
func (a Attachment) Title() string {
	return cmp.Or(a.Claim, a.PersistentVolume, a.VolumeHandle, a.Name)
}

// Short returns the title of one of the Others, without the namespace that the row shows already.
func (r volumeRow) Short(other Attachment) string { return withoutNamespace(other.Title(), r.Claim) }

// withoutNamespace returns a name without its namespace if another name has the same one.
func withoutNamespace(name, beside string) string {
	namespace, rest, found := strings.Cut(name, "/")
	if found && strings.HasPrefix(beside, namespace+"/") {
		return rest
	}
	return name
}

// matches reports whether all words of a query are in the texts of the row.
func (r volumeRow) matches(query string, now time.Time) bool {
	texts := []string{r.Name, r.Driver, r.Node, r.PersistentVolume, r.VolumeHandle, r.Claim, r.LastError, r.WaitsFor, r.Why.Text(now)}
	return matchesText(query, texts...)
}

// volumeRows returns a row for each VolumeAttachment, in the same order.
func volumeRows(all []Attachment, drivers []Driver, o Overview, now time.Time) []volumeRow {
	byName := make(map[string]*Driver, len(drivers))
	for i := range drivers {
		byName[drivers[i].Name] = &drivers[i]
	}
	rows := make([]volumeRow, len(all))
	for i, a := range all {
		rows[i].Attachment = a
		if !open(a) {
			continue
		}
		found := Diagnose(DiagnosisInput{Attachment: a, Driver: byName[a.Driver], Replicas: o.Replicas, Conflicts: o.Config.Conflicts, Now: now})
		if len(found) > 0 {
			rows[i].Why = found[0]
		}
	}
	return rows
}

// collapse joins the rows of a driver that wait for the same reason to the first of them.
func collapse(rows []volumeRow) []volumeRow {
	at := map[string]int{}
	var joined []volumeRow
	for _, r := range rows {
		key := r.TroubleKey(r.Why)
		i, known := at[key]
		if !known {
			at[key] = len(joined)
			joined = append(joined, r)
			continue
		}
		joined[i].Others = append(joined[i].Others, r.Attachment)
	}
	return joined
}

// failureRow is a failed try, or several of an operation with the same error.
type failureRow struct {
	Failure              // the latest of them
	Volumes []Attachment // only Name is set of those that are gone
	Times   int
}

// failureRows collapses equal failures. all are the VolumeAttachments of the driver.
func failureRows(failures []Failure, all []Attachment) []failureRow {
	byName := map[string]Attachment{}
	for _, f := range failures {
		byName[f.VolumeAttachment] = Attachment{Name: f.VolumeAttachment}
	}
	for _, a := range all {
		if _, failed := byName[a.Name]; failed {
			byName[a.Name] = a
		}
	}
	var rows []failureRow
	for _, f := range failures {
		i := slices.IndexFunc(rows, func(r failureRow) bool { return r.Operation == f.Operation && r.Text == f.Text })
		if i < 0 {
			i, rows = len(rows), append(rows, failureRow{Failure: f})
		}
		r := &rows[i]
		r.Times++
		known := slices.ContainsFunc(r.Volumes, func(a Attachment) bool { return a.Name == f.VolumeAttachment })
		if f.VolumeAttachment != "" && !known {
			r.Volumes = append(r.Volumes, byName[f.VolumeAttachment])
		}
	}
	return rows
}
