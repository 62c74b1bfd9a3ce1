// Bench measures csi-attach-hub next to the baseline: a client that knows every answer
// and makes only the calls that correctness needs. If there is a binary of
// csi-attacher, bench measures that too.
//
// The flow: main.go measures one Case of case.go after the other. A case sets its stage once: a
// control plane, drivers in this process, nodes and volumes (stage.go). Then the competitors
// (competitor.go) take turns, one at a time, for several rounds. Each turn gives Figures
// (figure.go). The report has the medians over the rounds, and the ratios of the hub to the baseline
// in the same round, because other work on the machine slows both (sample.go, report.go).
//
// Every competitor is a process of its own, and so is the baseline. A clock measures rates and
// latencies: from the request that creates or deletes a VolumeAttachment until it is attached or
// gone. The API server counts writes and reads, the drivers' books count calls, and the kernel
// measures memory and CPU time (count.go).
//
// A missed target is in the report, and is no error.
package main
