package status

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Overview is the state of the hub, without its drivers.
type Overview struct {
	Version  string    `json:"version,omitempty"`
	Identity string    `json:"identity,omitempty"` // of this replica
	Started  time.Time `json:"started,omitzero"`
	Config   Config    `json:"config"`
	Replicas []string  `json:"replicas,omitempty"` // their identities, in order
	// Unserved counts the VolumeAttachments of drivers that are not served here, by
	// spec.attacher, without those that need no driver.
	Unserved map[string]int `json:"unserved,omitempty"`
	// UnservedSince has those of these drivers, by spec.attacher, for which a VolumeAttachment waits to be
	// attached or detached: since when the longest-waiting one shows no sign of any attacher.
	UnservedSince map[string]time.Time `json:"unservedSince,omitempty"`
}

// Source is the running hub. Its methods are called from many goroutines at once and must not wait
// for a driver or for the API server, except Checklist. The caller owns what they return, with all that is in it.
type Source interface {
	// Drivers returns every driver that is engaged, each name once, in any order.
	Drivers() []Driver
	// Attachments returns the VolumeAttachments that the filter selects, in any order. It may
	// return more: the caller applies the filter again.
	Attachments(AttachmentFilter) []Attachment
	// Checklist returns the checks of a driver, for which it may wait for the API server for some seconds.
	Checklist(ctx context.Context, driver string) []Check
	// Overview returns the state of the hub, without its drivers.
	Overview() Overview
}

// Config is the state of the configuration and of the other sources of drivers.
type Config struct {
	Hash        string       `json:"hash,omitempty"`       // of the configuration in force; equal for equal contents
	LastSuccess time.Time    `json:"lastSuccess,omitzero"` // when the configuration in force was read
	Files       []ConfigFile `json:"files,omitempty"`      // the file, or those of a folder
	Errors      []string     `json:"errors,omitempty"`     // of the last reload, each "drivers.yaml:14: ..."
	Warnings    []string     `json:"warnings,omitempty"`
	Conflicts   []Conflict   `json:"conflicts,omitempty"`
}

// ConfigFile is one file of the configuration.
type ConfigFile struct {
	Path     string `json:"path"`
	Rejected string `json:"rejected,omitempty"` // that it was, and what holds instead; empty if the file holds as it is now
}

// Conflict is a place where a driver was found and from which it is not served.
type Conflict struct {
	Driver string `json:"driver"`
	Winner string `json:"winner,omitempty"` // the place from which the driver is served; empty if it is not served
	Loser  string `json:"loser"`            // the place from which it is not served
	Reason string `json:"reason"`
}

// view is what a Source says at one moment, with the health of all of it.
type view struct {
	Overview
	Now     time.Time
	drivers []Driver // by name
	source  Source
}

// look asks a Source for everything but VolumeAttachments.
func look(source Source) view {
	v := view{source.Overview(), time.Now(), append([]Driver{}, source.Drivers()...), source} // not nil: that is null in JSON
	slices.SortFunc(v.drivers, func(a, b Driver) int { return cmp.Compare(a.Name, b.Name) })
	for i := range v.drivers {
		d := &v.drivers[i]
		d.Lanes = append([]Lane{}, d.Lanes...)
		d.Health = HealthOfDriver(*d, v.Replicas, v.Now)
	}
	return v
}

// driver returns a driver, nil if there is none of the name.
func (v view) driver(name string) *Driver {
	i, found := slices.BinarySearchFunc(v.drivers, name, func(d Driver, name string) int { return cmp.Compare(d.Name, name) })
	if !found {
		return nil
	}
	return &v.drivers[i]
}

// attachments returns the VolumeAttachments that the filter selects, in any order, with their health.
func (v view) attachments(f AttachmentFilter) []Attachment {
	all := slices.DeleteFunc(v.source.Attachments(f), func(a Attachment) bool { return !f.Match(a) })
	for i := range all {
		all[i].Health = HealthOfAttachment(v.input(all[i]))
	}
	return slices.DeleteFunc(all, func(a Attachment) bool { return len(f.Health) > 0 && !slices.Contains(f.Health, a.Health.State) })
}

// input returns what the diagnosis of a VolumeAttachment needs.
func (v view) input(a Attachment) DiagnosisInput {
	return DiagnosisInput{Attachment: a, Driver: v.driver(a.Driver), Replicas: v.Replicas, Conflicts: v.Config.Conflicts, Now: v.Now}
}
