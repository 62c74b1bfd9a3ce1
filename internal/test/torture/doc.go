// Package torture breaks everything around real hubs, and checks that they lose nothing. Three programs share its world:
//
//   - Chaos draws faults by a seed, many at once, while pods attach and detach volumes.
//   - RunCrashes kills a hub at each write and call of each scenario.
//   - Soak has no fault: the hub works for a long time, and must not cost more at the end than at the beginning.
//
// A world is a testbed.World: a real control plane, drivers that keep books, and two hub processes, each behind a proxy of its
// own to the API server. The pods are the model: each asks for one volume on one node, or for nothing.
//
// # The audit
//
// All rules are those of package safety. When nothing moves any more, an audit compares what the pods ask for with the objects
// and the drivers' books. It must find nothing, also after the hub has listed every driver twice more.
//
// Many faults heal before that: only what happened at each moment shows them. The history records, on one monotonic clock: each
// call as its driver saw it (begin, end, deadline, process); each change of a storage; each write of a VolumeAttachment, a
// PersistentVolume or a Lease with the answer of the API server. At each quiet it is judged:
//
//   - Who may act. A register holds, for each driver, the process that may act. It changes when a Lease is written with another
//     holder, and when a Lease was not renewed for its duration. Each begin and end of a call (at most its deadline) and each
//     write of a hub is an act that only the holder may do, at some moment of that act.
//   - Statuses, finalizers, and detaches of what is wanted. Of crashes also: calls after a takeover that repeat what is recorded.
//
// The excuses, each as narrow as it can be:
//
//   - A write that arrives during or right after a pause of its process counts from the begin of the pause. Requests do not say
//     which process of a hub has sent them: a write counts for its hub, a call for its process.
//   - What a fault has detached is no fault of a hub.
//   - A write whose outcome is not known may have taken effect: the state of its object is not known until the next write.
//
// # Chaos
//
// The seed fixes a plan: which faults begin in which stretch, when and where. At the end of a stretch all is healed, and the run
// waits for quiet. It also compares what the hub processes take at each quiet. HubPausedLate makes the judge sharp: it
// lets the leases of a hub run out while its calls hang, and pauses it before it notices. The plan leaves out what the hub cannot
// promise:
//
//   - A VolumeAttachment may vanish while its volume is attached, if it loses its finalizer or is deleted before it has one
//     (kubernetes/kubernetes issue 124749). Only the process that made the call surely knows of it. A stretch with such
//     VolumeAttachments has one hub, which does not end.
//   - A call that takes longer than a lease is not protected when its process stops in the middle of it. No timeout is longer.
//   - A driver may refuse to detach a volume whose VolumeAttachment is gone, and then decides about the next publish itself.
//
// # Crashes
//
// The writes and calls of a scenario are its steps. At a point a request is kept back before it
// takes effect, or its answer is. When each driver is at its point, the process is killed once (SIGKILL), and the other one takes
// over, whose caches are filled and whose watch of one resource may lag. When it is killed, a status that says "attached" is
// true, and a VolumeAttachment with a finalizer stands for whatever is attached. The other process reaches what is wished, and
// repeats no call that is recorded as done. Then everything can be detached and deleted.
//
// # Soak
//
// One hub works without a fault. Of each quantity the median of the last quarter is compared with that of the first one after the
// warm-up. A rise above a part of the quantity's level, beyond noise, is growth. To find a smaller leak, run for longer.
package torture
