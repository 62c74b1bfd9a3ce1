// Package chaos breaks everything around the hub, at random and many things at once, and checks
// that the hub loses nothing: what pods ask for is attached, and nothing else is.
//
// The flow of a run: Run starts a testbed.World (a real control plane, drivers that keep books, hub
// processes, each behind a proxy of its own to the API server). Its pods attach and detach
// volumes all the time. The seed fixes a plan: which faults begin in which stretch, when and
// where. An injector carries them out, many at once. At the end of a stretch Run heals all
// faults, lets the pods rest and waits for quiet: an audit finds nothing, and still finds nothing
// after the hub has listed every driver twice more. Run also compares what the hub processes take
// at each quiet.
//
// The pods are the model: each asks for one volume on one node, or for nothing. The truth is in
// the drivers' books (package fakecsi) and in the API server. The audit is a pure function of
// both. The plan leaves out what the hub cannot promise:
//
//   - A VolumeAttachment may vanish while its volume is attached, if it loses its finalizer or is
//     deleted before it has one (kubernetes/kubernetes issue 124749). Only the process that made
//     the call surely knows of it. A stretch with such VolumeAttachments therefore has one hub,
//     which does not end. The hub may be paused, be cut off and lose its leases.
//   - A call that takes longer than a lease is not protected when its process stops in the middle
//     of it. No timeout is therefore longer than a lease allows.
//   - The hub detaches only what somebody has asked for. When a storage attaches a volume on its
//     own, the injector detaches the volume again.
//   - A driver that comes back without SINGLE_NODE_MULTI_WRITER gets requests with another access
//     mode. By the CSI specification it refuses them (ALREADY_EXISTS) until the VolumeAttachment is
//     deleted. Every driver therefore keeps that capability.
//   - A driver may refuse to detach a volume whose VolumeAttachment is gone. The hub may then ask for
//     that volume on another node before it tries the detach again: the driver decides, as it
//     does with csi-attacher. The audit accepts that.
//   - A hub that starts with a broken drivers.yaml ends with an error. It is started again when the
//     file is whole.
//
// Calm is a run without faults, for package soak: the same pods, and the same audit at the end.
//
// Chaos measures growth only. Package bench measures speed.
package chaos
