// Package crash kills hubs at each of their writes and calls, and checks that nothing is lost and that no call is
// made again without need.
//
// A Scenario is something that a process does for a driver: an attach, a detach, a drain, say. It runs once without a
// crash, and its writes and calls are counted: these are the steps. A Point is a step and a Phase: the process is
// killed before the request takes effect, when it has taken effect and before its answer comes back, or after the
// answer. A Case is a Scenario that is killed at a Point.
//
// The flow: a Batch has two hub processes on a real API server. Each reaches the API server through a proxy of its
// own, and each driver on a socket of its own. A tape stands at both, for each driver: it records the steps, and keeps
// back the request or answer of the Point. When each case of a batch is at its Point, the process is killed once
// (SIGKILL), and the other one takes over. Its caches are filled then; its watch of one resource may have lagged since
// before or after the trigger, until 3 s after the takeover. The leases of the dead process are made to expire after
// a second, so that the processes themselves can have long leases.
//
// What must hold, as audit.go says with the rules of package safety:
//
//   - When the process is killed, a status that says "attached" is true, and a VolumeAttachment with a finalizer
//     stands for whatever is attached. Two scenarios begin with the opposite: the storage loses an attachment whose
//     status stays, and a VolumeAttachment is removed whose volume stays attached. Each may find its own difference.
//   - The other process reaches what is wished: exactly that is attached, and the rest is gone.
//   - After that everything can be detached and deleted, and no finalizer stays.
//   - The drivers' books have no violation.
//   - A call succeeds as often as without a crash. It may succeed once more only if it had succeeded before the
//     crash, and the process had not recorded that at the VolumeAttachment yet.
//
// Writes that no decision depends on are not steps: Events, renewals of leases, and the announcements of replicas.
// Reads are not steps either: a crash between two steps is the same wherever it is.
//
// Package chaos draws faults at random and mixes them. Here each run has one fault, and all of them are enumerated.
package crash
