// Package statustable writes what the subcommands status and volumes print.
//
// NewReport takes what the replicas of a hub answered and what is in trouble; Report.Text writes it as text, and its
// fields are what -o json prints. Volumes is VolumeAttachments as a Table. Table.Text lays rows out for the width of a
// terminal, or for a pipe.
//
// The package contacts nobody and computes no health: hub/status does. All texts from outside are escaped.
package statustable
