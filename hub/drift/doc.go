// Package drift compares a driver's list of its volumes (ListVolumes) with the VolumeAttachments.
//
// A Watch asks for the list at intervals, and finds two differences that two listings in a row must show, because the lists of
// storage systems are often late:
//
//   - A volume is missing: its VolumeAttachment says attached, and the list does not have it on the node (compare.go).
//   - A volume is dangling: the list has it on a node where no VolumeAttachment asks for it (dangling.go). WhyKept (kept.go) names
//     the reason not to detach it; with drift.unexpected: report that is always one.
//
// What has changed between the first and the last page is not compared. What follows from a difference is up to the Actions.
// Nodes (nodes.go) has the answers of the API server to the question whether a kubelet uses a volume.
package drift
