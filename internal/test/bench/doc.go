// Package bench measures csi-attach-hub next to a baseline: a client that knows every
// answer and makes only the calls that correctness needs (package baseline). If there is a
// binary of csi-attacher, bench measures that too.
//
// The flow: Run measures one Case after the other. A case sets its stage once: a control
// plane, drivers in this process, nodes and volumes. Then the competitors take turns, one at
// a time, for several rounds: A, B, B, A. Each turn gives a Sample of Figures, and may give Series
// and Stacks for charts. The report has medians over the rounds and ratios to the baseline of the
// same round, because other work on the machine slows all competitors. It can be a table, JSON and
// Markdown with pictures. A narrator says what goes on, and a forecast how long it still takes.
//
// Every competitor is a process of its own, and so is the baseline, which the tables call the
// floor. A watcher measures rates and latencies: from the request that creates or deletes a
// VolumeAttachment until it is attached or gone. The API server counts writes and reads, the
// drivers' books count calls, and the kernel measures memory and CPU time.
//
// A missed target is in the report, and is no error.
package main
