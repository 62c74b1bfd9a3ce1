// Package drift compares a driver's list of its volumes (ListVolumes) with the VolumeAttachments.
//
// A Watch lists the volumes at intervals, and finds two differences that two listings in a row must show, because the lists of
// storage systems are often late:
//
//   - A volume is missing: its VolumeAttachment says attached, and the list does not have it on the node (missing.go). drift.action says
//     whether it is attached again.
//   - A volume is dangling: the list has it on a node where no VolumeAttachment needs it (dangling.go). It is reported, and with
//     drift.unexpected: detach the volume.Table has it detached unless something keeps it.
//
// What has changed between the first and the last page is not compared.
// Nodes (nodes.go) has the answers of the API server to the question whether a kubelet uses a volume.
package drift
