// Package explain says why a volume is not attached, in plain words, and what to do.
//
// The flow: Gather reads what can be read about a question — the Pod, its claims and
// PersistentVolumes, the VolumeAttachment, driver, node and leases from the API server,
// and what the replicas of a hub know — into Facts. Explain, which is pure, walks
// along pod → claim → PersistentVolume → VolumeAttachment → driver → node → lease → last
// error, and stops where something is not as it should be. The Report says what is in
// order, where it stops, what else was found and what could not be asked; Text prints it.
//
// Of several things that are wrong the first on the way is the stop: what keeps
// anybody from working for the driver, then what the objects lack, then what the driver
// said. The others are notes.
//
// Each object is read once, and is then one of four things: not read, absent, unreadable or
// present (see Object). Only an absent one is called missing. What is unreadable is said,
// and where the answer hangs on it the result is NotKnown.
//
// A claim is looked at by whatever means the volume was asked for. It stops the walk where
// it led to the volume, from a Pod or the claim itself. A VolumeAttachment is carried out
// without it: what is wrong with the claim then is a note.
//
// Whatever the hub's status page says too is said by the same package with the same words:
// hub/status compares, hub/diagnosis has the texts. Verdicts that follow from objects of
// Kubernetes, which the hub does not look at, are only here.
//
// What the hub waits for is told by its kind (status.Wait), never by its text: that of an
// earlier hub, which sends no kind, is only shown. Where the hub says that the volume was left
// attached somewhere, this is a note, also on an object that is gone.
//
// Nothing is written, and no secret is read: only whether it exists is asked for, where
// that is allowed.
package explain
