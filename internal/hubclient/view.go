package hubclient

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// Answer is the answer of one replica, or the error.
type Answer struct {
	Replica  string    // how it was reached: a URL, or "Pod namespace/name"
	Time     time.Time // of the answer
	Err      error
	Overview status.Overview
	Drivers  []status.Driver
}

// View merges the answers of the replicas of a hub.
type View struct {
	Replicas []Replica `json:"replicas"` // in the order of the answers
	Drivers  []Driver  `json:"drivers"`  // each once, sorted by name
	// Unclaimed counts the VolumeAttachments of drivers that no replica serves.
	Unclaimed map[string]int `json:"unclaimed,omitempty"`
}

// Replica is one process of a hub.
type Replica struct {
	Replica string `json:"replica"` // as in Answer
	Error   string `json:"error,omitempty"`
	// Overview is zero if there was an Error.
	Overview status.Overview `json:"overview,omitzero"`
	// Unreachable are the drivers that this replica cannot call while another replica can.
	Unreachable []Unreachable `json:"unreachable,omitempty"`
}

// Driver is the state of a driver, from the replica that works for it if there is one.
type Driver struct {
	status.Driver
	Replica string `json:"replica"` // that reported this state, as in Answer
	// Leader is the identity of the replica that works for the driver, or of another holder
	// of its lease; empty if there is none.
	Leader string `json:"leader,omitempty"`
}

// Merge returns the View of the answers.
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
	for i, a := range answers {
		v.Replicas[i].Unreachable = unreachable(a, best)
	}
	return v
}

// knowsMore reports whether the replica of a knows more about a driver than that of b: it works
// for the driver, or else it can reach it.
func knowsMore(a, b Driver) bool {
	if a.Lease.Mine != b.Lease.Mine {
		return a.Lease.Mine
	}
	return a.Up && !b.Up
}

// Reached reports whether any replica has answered.
func (v View) Reached() bool {
	return slices.ContainsFunc(v.Replicas, func(r Replica) bool { return r.Error == "" })
}

// Members returns the replicas that have answered, and those that they know; some more than once.
func (v View) Members() []status.Replica {
	var all []status.Replica
	for _, r := range v.Replicas {
		all = append(append(all, status.Replica{Identity: r.Overview.Identity}), r.Overview.Replicas...)
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

// Conflicts returns the conflicts of a driver, each once.
func (v View) Conflicts(driver string) []status.Conflict {
	return slices.DeleteFunc(v.AllConflicts(), func(c status.Conflict) bool { return c.Driver != driver })
}

// AllConflicts returns the conflicts of all drivers, each once.
func (v View) AllConflicts() []status.Conflict {
	return distinct(v, func(c status.Config) []status.Conflict { return c.Conflicts })
}

// RejectedFiles says of each bad file of the configuration what holds instead, each once.
func (v View) RejectedFiles() []string {
	return distinct(v, func(c status.Config) (rejected []string) {
		for _, f := range c.Files {
			if f.Rejected != "" {
				rejected = append(rejected, f.Rejected)
			}
		}
		return rejected
	})
}

// ConfigErrors returns the errors of the configuration, each once.
func (v View) ConfigErrors() []string {
	return distinct(v, func(c status.Config) []string { return c.Errors })
}

// ConfigWarnings returns the warnings of the configuration, each once.
func (v View) ConfigWarnings() []string {
	return distinct(v, func(c status.Config) []string { return c.Warnings })
}

// distinct returns what the configurations of the replicas contain, each value once.
func distinct[T comparable](v View, of func(status.Config) []T) []T {
	var all []T
	for _, r := range v.Replicas {
		for _, value := range of(r.Overview.Config) {
			if !slices.Contains(all, value) {
				all = append(all, value)
			}
		}
	}
	return all
}

// Problems returns the problems of the replicas themselves, each on a line.
func (v View) Problems() []string {
	var problems, hashes []string
	byHash := map[string][]string{}
	for _, r := range v.Replicas {
		if r.Error != "" {
			problems = append(problems, fmt.Sprintf("%s does not answer: %s", r.Replica, r.Error))
			continue
		}
		if text := r.unreachableText(); text != "" {
			problems = append(problems, text)
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
