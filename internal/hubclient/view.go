package hubclient

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// Answer is what one replica said, or why it did not.
type Answer struct {
	Replica  string // how it was reached: a URL, or "Pod namespace/name"
	Err      error
	Overview status.Overview
	Drivers  []status.Driver
}

// View is what the replicas of a hub say together.
type View struct {
	Replicas []Replica `json:"replicas"` // those that were asked, as they were asked
	Drivers  []Driver  `json:"drivers"`  // each once, by name
	// Unclaimed counts the VolumeAttachments of drivers that no replica serves.
	Unclaimed map[string]int `json:"unclaimed,omitempty"`
}

// Replica is one process that was asked.
type Replica struct {
	Replica string `json:"replica"` // as in Answer
	Error   string `json:"error,omitempty"`
	// Overview is zero if there was an Error.
	Overview status.Overview `json:"overview,omitzero"`
}

// Driver is a driver as the replica sees it that knows most of it: the one that works
// for it, if there is one.
type Driver struct {
	status.Driver
	Replica string `json:"replica"` // whose view this is, as in Answer
	// Leader is the identity of the replica that works for the driver, or of somebody
	// else who holds its lease; empty if nobody does.
	Leader string `json:"leader,omitempty"`
}

// Merge makes one View of all answers.
func Merge(answers []Answer) View {
	v := View{Drivers: []Driver{}, Replicas: []Replica{}}
	best := map[string]Driver{}
	for _, a := range answers {
		r := Replica{Replica: a.Replica}
		if a.Err != nil {
			r.Error = a.Err.Error()
		} else {
			r.Overview = a.Overview
		}
		v.Replicas = append(v.Replicas, r)
		for _, d := range a.Drivers {
			next := Driver{Driver: d, Replica: a.Replica, Leader: d.Lease.Holder}
			if d.Lease.Mine {
				next.Leader = cmp.Or(d.Lease.Holder, a.Overview.Identity, a.Replica)
			}
			if was, known := best[d.Name]; !known || knowsMore(next, was) {
				best[d.Name] = next
			}
		}
		for attacher, n := range a.Overview.Unclaimed {
			if v.Unclaimed == nil {
				v.Unclaimed = map[string]int{}
			}
			v.Unclaimed[attacher] = max(n, v.Unclaimed[attacher])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(best)) {
		v.Drivers = append(v.Drivers, best[name])
		delete(v.Unclaimed, name) // one of the replicas serves it
	}
	return v
}

// knowsMore says whether a is the better view of a driver than b: of who works for it,
// else of who could.
func knowsMore(a, b Driver) bool {
	if a.Lease.Mine != b.Lease.Mine {
		return a.Lease.Mine
	}
	return a.Up && !b.Up
}

// Reached says whether any replica has answered.
func (v View) Reached() bool {
	return slices.ContainsFunc(v.Replicas, func(r Replica) bool { return r.Error == "" })
}

// Driver returns what is known about a driver, nil if no replica serves it.
func (v View) Driver(name string) *Driver {
	for i := range v.Drivers {
		if v.Drivers[i].Name == name {
			return &v.Drivers[i]
		}
	}
	return nil
}

// Conflicts returns those of a driver, each once.
func (v View) Conflicts(driver string) []status.Conflict {
	var all []status.Conflict
	for _, c := range v.AllConflicts() {
		if c.Driver == driver {
			all = append(all, c)
		}
	}
	return all
}

// AllConflicts returns what was found and is not served, each once.
func (v View) AllConflicts() []status.Conflict {
	var all []status.Conflict
	for _, r := range v.Replicas {
		for _, c := range r.Overview.Config.Conflicts {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}

// ConfigErrors returns what is wrong with the configuration, each once.
func (v View) ConfigErrors() []string {
	return v.texts(func(c status.Config) []string { return c.Errors })
}

// ConfigWarnings returns what is doubtful in the configuration, each once.
func (v View) ConfigWarnings() []string {
	return v.texts(func(c status.Config) []string { return c.Warnings })
}

func (v View) texts(of func(status.Config) []string) []string {
	var all []string
	for _, r := range v.Replicas {
		for _, text := range of(r.Overview.Config) {
			if !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return all
}

// Problems says, each on a line, what is wrong with the replicas themselves.
func (v View) Problems() []string {
	var problems, hashes []string
	byHash := map[string][]string{}
	for _, r := range v.Replicas {
		if r.Error != "" {
			problems = append(problems, fmt.Sprintf("%s does not answer: %s", r.Replica, r.Error))
			continue
		}
		hash := r.Overview.Config.Hash
		if byHash[hash] == nil {
			hashes = append(hashes, hash)
		}
		byHash[hash] = append(byHash[hash], r.Replica)
	}
	if len(hashes) > 1 {
		var groups []string
		for _, hash := range hashes {
			groups = append(groups, fmt.Sprintf("%s has %s", strings.Join(byHash[hash], ", "), cmp.Or(hash, "none")))
		}
		problems = append(problems, "the replicas have different configurations: "+strings.Join(groups, "; "))
	}
	return problems
}
