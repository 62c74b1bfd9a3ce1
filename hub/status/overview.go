package status

import "time"

// Overview is the state of the hub without its drivers.
type Overview struct {
	Version  string    `json:"version,omitempty"`
	Identity string    `json:"identity,omitempty"` // of this replica
	Started  time.Time `json:"started,omitzero"`
	Config   Config    `json:"config"`
	Replicas []Replica `json:"replicas"`
	// Unclaimed counts the VolumeAttachments of drivers that are not served here, by
	// spec.attacher, without those that need no driver.
	Unclaimed map[string]int `json:"unclaimed,omitempty"`
}

// Config is the state of drivers.yaml and of the other sources of drivers.
type Config struct {
	Path         string     `json:"path,omitempty"` // empty without a file
	Hash         string     `json:"hash,omitempty"` // of what is in force; equal for equal contents
	LastReloadOK bool       `json:"lastReloadOK"`
	LastSuccess  time.Time  `json:"lastSuccess,omitzero"` // when what is in force was read
	Errors       []string   `json:"errors,omitempty"`     // of the last reload, each "drivers.yaml:14: ..."
	Warnings     []string   `json:"warnings,omitempty"`
	Conflicts    []Conflict `json:"conflicts,omitempty"`
}

// Conflict is a driver that was found and is not served, or not as it was found.
type Conflict struct {
	Driver string `json:"driver"`
	Winner string `json:"winner,omitempty"` // where what is served instead was learned; empty if nothing is
	Loser  string `json:"loser"`            // where what is not served was learned
	Reason string `json:"reason"`
}

// Replica is one process of the hub.
type Replica struct {
	Identity string   `json:"identity"`
	Self     bool     `json:"self"`    // the one that answers
	Drivers  []string `json:"drivers"` // those whose leases it holds
}
