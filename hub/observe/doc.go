// Package observe compares what another attacher does for a driver with what the hub would do.
//
// There is an Observer while the mode of a driver is observe. The Router names each VolumeAttachment that
// has changed (Look), and attach.Driver.Differences returns what the hub would have done otherwise, by the objects in the caches.
// The result counts once the other attacher is done: an attach when the status says attached, a detach
// when the VolumeAttachment is gone. Until then it is pending, and while the caches lack an object without which the
// hub would have failed. Report returns the counts and the latest disagreements.
//
// The package has no goroutine, writes nothing, and sends no request: whether the hub could read the Secrets of the
// driver's volumes is on the driver's checklist.
package observe
