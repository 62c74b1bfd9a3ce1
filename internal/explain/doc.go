// Package explain says why a volume is not attached, in plain words, and what to do.
//
// Explain asks the replicas of the hub what they know (explain.go:askHub), and reads what there is about a question: the Pod, its claims
// and PersistentVolumes, the VolumeAttachment, driver, node and lease from the API server. Then it walks along pod → claim →
// PersistentVolume → VolumeAttachment → driver with its lease → CSINode → last error → Node, and stops where something is not as it should
// be. The Report says what is in order, where it stops, what else was found and what could not be read; Text prints it.
//
// The order of its questions: walk.go:explain asks podStage, claimStage, volumeStage and attachmentStage, then attach.go:operation asks
// fault, service (driver and lease), withoutDriver (CSINode), elsewhere, tries (last error) and nodeNotes.
//
// explain.go begins; question.go parses what is asked; volume.go finds the VolumeAttachments. service.go has the questions about the
// driver, not_asked.go says why there is no VolumeAttachment, driver_and_node.go answers for a driver or a node. cure.go has the
// commands; report.go and text.go print.
//
// A question about a driver or a node has one report for the driver or node, and a list of its VolumeAttachments. For a
// driver that the hub serves, the reasons are those of status.Driver.Health: explain adds only what the objects show.
//
// The first problem on the way is the stop: first what keeps attachers from working for the driver, then what the objects
// lack, then the errors of the driver. The others are notes.
//
// Each object is read once, and is then missing, unreadable or there (see object). Only an object that was looked for and is
// not there counts as missing. The report names unreadable objects; if the answer depends on them, the result is NotKnown.
//
// Every walk checks the claim. A problem of the claim is the stop if the question is about a Pod or the claim, or if there is no
// VolumeAttachment. An attacher needs no claim, so beside a VolumeAttachment the problem is a note.
//
// explain and the status page use the same words: hub/status compares, hub/diagnosis has the texts. Only explain has the
// verdicts about objects of Kubernetes that the hub does not read. It decides by verdicts and by the kind of what the hub
// waits for (status.Wait), never by a text.
//
// What the hub knows of a VolumeAttachment is taken from it: the fault of its objects, the cause of its last error. Without an
// answer of the hub, the last error is that in the object.
//
// The package writes nothing and reads no Secret.
package explain
