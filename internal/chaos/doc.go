// Package chaos breaks everything around the hub, at random and all at once, and checks that
// nothing is lost: what is asked for is attached, and nothing else is.
//
// The flow of a run: a testbed.World is put up (a real control plane, drivers that keep books, hub
// processes, each with a proxy of its own in front of the API server) in which pods
// attach and detach volumes all the time. A plan, fixed by the seed, says stretch by stretch
// which faults begin when, and where; an injector carries them out, many at once. At the
// end of a stretch all is healed, the pods stay where they are, and quiet is awaited: an audit
// that finds nothing, and goes on finding nothing while the drivers are listed twice more.
// Growth compares what the hub processes take at each quiet.
//
// The model is the pods: what each of them asks for, or that it asks for nothing. The truth
// are the drivers' books (package fakecsi) and the API server. The audit is a pure
// function of both. What cannot be promised is not done instead,
// and the plan says so:
//
//   - A VolumeAttachment that goes without its finalizer, because it is deleted before it has one or because somebody
//     takes it, may vanish with its volume attached (kubernetes/kubernetes issue 124749). Only the process that made
//     the call surely knows of it. So there is one hub in a stretch with such VolumeAttachments, and
//     it does not end. It may be paused, cut off and lose its leases.
//   - Calls that take longer than a lease are not protected when a process is stopped in the middle
//     of one. So no timeout is longer than what fits into a lease.
//   - A storage that attaches a volume on its own is undone by the one who did it: the hub detaches
//     only what somebody has asked for.
//   - A driver that comes back without SINGLE_NODE_MULTI_WRITER is asked for another access mode, and the CSI
//     specification has it refuse (ALREADY_EXISTS) what is published in the old one, until the
//     VolumeAttachment is deleted. So that capability stays.
//   - A driver that has refused to detach what a VolumeAttachment that is gone has
//     left attached may be asked for the volume on another node while the hub
//     waits to try again: it decides, as it does for csi-attacher. That one the
//     audit lets pass.
//   - A hub that is started on a broken drivers.yaml ends with an error, and is started again when the
//     file has been mended.
//
// Calm is a run without faults, for package soak: the same pods, and the same audit at the end.
//
// It measures nothing but growth: how fast things are is a matter of benchmarks.
package chaos
