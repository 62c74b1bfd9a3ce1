// Package torture breaks everything around the hub, at random and many things at once, and checks
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
// # The history
//
// Many faults heal before a quiet: only what happened at each moment shows them. A history records, on one monotonic
// clock: each publish and unpublish as its driver saw it (begin, end, deadline, the process that made it); each
// change of a storage; each write of a VolumeAttachment, a PersistentVolume or a Lease as it left its process, with
// the answer of the API server. Proxies record the writes of hubs, also those that a fault refuses; the clients of
// pods record theirs. A write is carried through when its client gives it up, so that its outcome is known. Watches
// would be less reliable: they skip states, and do not say who has written. --history names the file, JSON lines.
//
// At each quiet the history since the last one is checked, and then forgotten but for the last state of each object:
//
//   - Who may act (safety.Misplaced). A register holds, for each driver, the process that may act. It changes when a
//     Lease is written with another holder, and when a Lease was not renewed for its duration, at some moment of that
//     write. Each begin of a call, each end of a call (at most its deadline) and each write of a hub is an act that
//     only the holder may do, at some moment of that act.
//   - The rules of package safety for calls and writes (judge.go): statuses, finalizers, detaches of what is wanted, and
//     calls after a takeover that repeat what is recorded. The books of package fakecsi check the rules of one call at
//     a time and of one node when each call begins.
//
// The excuses of these checks, each as narrow as it can be:
//
//   - A network may hold a request back. A write that arrives during or right after a silence of its proxy counts from
//     the begin of the silence. A write that arrives right after a pause of its process counts from the begin of the
//     pause: it may have passed the fence before (package lease). Requests do not say which process of a hub has sent
//     them: a write counts for its hub, a call for its process.
//   - A driver that has refused a detach decides about the next publish itself, as below.
//   - What a fault has attached or detached is no fault of a hub.
//   - Volumes of a driver without PUBLISH_UNPUBLISH_VOLUME are reported as attached without a call.
//   - A hub whose watch has begun anew may not have seen that an object was deleted before it was gone. It detaches
//     the volume again, to be sure. So does a process that has made a call for the volume there before.
//   - A write whose outcome is not known may have taken effect: the state of its object is not known until the next
//     write.
//
// Takeovers are faults that make this check sharp. TakeoverPaused lets the leases of a leader run out while its calls
// hang, and pauses it before it notices: a leader without a fence has calls in flight then that outlive its leases.
// TakeoverStale keeps the last changes from the next leader: a leader that does not read after a takeover repeats what
// is done.
//
// # The model
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
package torture
