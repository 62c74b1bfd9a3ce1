// Package observe compares what another attacher does for a driver with what the hub would do.
//
// An Observer runs while the mode of a driver is observe. Package hub names each VolumeAttachment that
// has changed (Look). A worker reads the objects, and attach.Driver.Observe returns what the hub would have
// done. The result counts once the other attacher is done: an attach when the status says attached, a detach
// when the VolumeAttachment is gone. Until then it is pending. Report returns the counts and the latest
// disagreements.
//
// The package writes nothing and makes no call to the driver. It reads each Secret that the hub's calls
// would need, to learn whether the hub has the right, and keeps no value of it.
package observe
