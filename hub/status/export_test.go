package status

// WaitKinds are all of them.
var WaitKinds = []WaitKind{WaitForDetach, WaitForDanglingDetach, WaitForVolume, WaitForNode, WaitForWorker, WaitForDriver, WaitForConfiguration}
