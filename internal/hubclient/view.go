package hubclient

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// View merges the answers of the replicas of a hub.
type View struct {
	Replicas []Replica `json:"replicas"` // in the order of the answers
	Drivers  []Driver  `json:"drivers"`  // each once, sorted by name
	// Unserved counts the VolumeAttachments of drivers that no replica serves.
	Unserved map[string]int `json:"unserved,omitempty"`
}

// Replica is the answer of one process of a hub, or the error.
type Replica struct {
	Replica  string          `json:"replica"` // how it was reached: a URL, or "Pod namespace/name"
	Error    string          `json:"error,omitempty"`
	Overview status.Overview `json:"overview,omitzero"`
	Drivers  []status.Driver `json:"-"` // View.Drivers has them, merged
}

// Driver is the state of a driver, from the replica that works for it if there is one.
type Driver struct {
	status.Driver
	Replica string `json:"replica"` // that reported this state
	// Leader is the identity of the replica that works for the driver, or of another holder
	// of its lease; empty if there is none.
	Leader string `json:"leader,omitempty"`
}

// Merge returns the View of the replicas' answers.
func Merge(replicas []Replica) View {
	v := View{Drivers: []Driver{}, Replicas: append([]Replica{}, replicas...), Unserved: map[string]int{}}
	best := map[string]Driver{}
	for _, r := range replicas {
		for _, d := range r.Drivers {
			next := Driver{Driver: d, Replica: r.Replica, Leader: d.Lease.Holder}
			if d.Lease.Mine {
				next.Leader = cmp.Or(d.Lease.Holder, r.Overview.Identity, r.Replica)
			}
			was, known := best[d.Name]
			if knowsMore := d.Lease.Mine && !was.Lease.Mine || d.Lease.Mine == was.Lease.Mine && d.Up && !was.Up; !known || knowsMore {
				best[d.Name] = next // its replica works for the driver, or else it can reach it
			}
		}
		for attacher, n := range r.Overview.Unserved {
			v.Unserved[attacher] = max(n, v.Unserved[attacher])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(best)) {
		v.Drivers = append(v.Drivers, best[name])
		delete(v.Unserved, name) // one of the replicas serves it
	}
	return v
}

// Reached reports whether any replica has answered.
func (v View) Reached() bool {
	return slices.ContainsFunc(v.Replicas, func(r Replica) bool { return r.Error == "" })
}

// Answered reports whether the replica of an identity has answered.
func (v View) Answered(identity string) bool {
	return slices.ContainsFunc(v.Replicas, func(r Replica) bool { return r.Overview.Identity == identity })
}

// Members returns the replicas that have answered, and those that they know; some more than once.
func (v View) Members() []string {
	var all []string
	for _, r := range v.Replicas {
		all = append(append(all, r.Overview.Identity), r.Overview.Replicas...)
	}
	return all
}

// Driver returns the state of a driver, nil if no replica serves it.
func (v View) Driver(name string) *Driver {
	for i := range v.Drivers {
		if v.Drivers[i].Name == name {
			return &v.Drivers[i]
		}
	}
	return nil
}

// Config merges the configurations of the replicas: their files, errors, warnings and conflicts, each once.
func (v View) Config() status.Config {
	var all status.Config
	for _, r := range v.Replicas {
		c := r.Overview.Config
		all.Files, all.Errors = union(all.Files, c.Files), union(all.Errors, c.Errors)
		all.Warnings, all.Conflicts = union(all.Warnings, c.Warnings), union(all.Conflicts, c.Conflicts)
	}
	return all
}

func union[T comparable](all, more []T) []T {
	for _, value := range more {
		if !slices.Contains(all, value) {
			all = append(all, value)
		}
	}
	return all
}

// Problems returns the problems of the replicas themselves, each on a line.
func (v View) Problems() []string {
	var problems, configs []string
	hashes := map[string]bool{}
	for _, r := range v.Replicas {
		if r.Error != "" {
			problems = append(problems, fmt.Sprintf("%s does not answer: %s", r.Replica, r.Error))
			continue
		}
		problems = append(problems, v.unreachable(r)...)
		hash := cmp.Or(r.Overview.Config.Hash, "none")
		hashes[hash] = true
		configs = append(configs, r.Replica+" has "+hash)
	}
	if len(hashes) > 1 {
		problems = append(problems, "the replicas have different configurations: "+strings.Join(configs, "; "))
	}
	return problems
}

// unreachable has a line for each driver that a replica cannot call while another can. A driver that the replica has
// just begun or ends to serve is not among them.
func (v View) unreachable(r Replica) []string {
	var lines []string
	for _, d := range r.Drivers {
		best, reasons := v.Driver(d.Name), d.Health.Reasons
		if d.Up || !best.Up || len(reasons) == 0 || !d.Health.Needs() || reasons[0].Verdict == diagnosis.DriverStarting || reasons[0].Verdict == diagnosis.DriverDraining {
			continue
		}
		fact := fmt.Sprintf("%s cannot call %s, another replica can", r.Replica, d.Name)
		lines = append(lines, diagnosis.Because(fact, cmp.Or(reasons[0].Detail, reasons[0].Fact)))
	}
	return lines
}
