// Package bench measures csi-attach-hub next to a baseline: a client that knows every
// answer and makes only the calls that correctness needs (package baseline), and next to
// csi-attacher if there is a binary of it.
//
// The flow: Run takes one Case after the other. A case sets its stage, once: a control
// plane, drivers in this process, nodes and volumes. Then the competitors take turns,
// one at a time, several rounds of them: A, B, B, A. What a turn gives is a Sample of
// Figures; medians over the rounds, and ratios to the baseline of the same round, are what
// counts, because other work on the machine slows all of them. The Report says what the
// figures and the targets are, as a table for a terminal, as JSON and as Markdown.
//
// Every competitor is a process of its own, and so is the baseline, which the tables call the floor. Rates and latencies are
// seen from outside, by a watcher: from the request that creates or deletes a
// VolumeAttachment until it is attached or gone. Writes and reads are those that the API
// server counted, calls those in the drivers' books, memory and CPU time the kernel's.
//
// What it does not do: judge. A missed target is said, and is no error.
package bench
