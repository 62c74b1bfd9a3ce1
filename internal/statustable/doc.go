// Package statustable writes what the subcommands status and volumes print.
//
// The flow: NewReport takes what the replicas of a hub answered and what is in trouble; Report.Text writes it as
// text, and its fields are what -o json prints. A List collects VolumeAttachments and sorts them, the worst first;
// VolumeTable writes them as a table. A grid lays cells out for the width of a terminal, or for a pipe.
//
// The package contacts nobody and computes no health: hub/status does. All texts from outside are escaped.
package statustable
