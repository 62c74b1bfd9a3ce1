package status

// WaitKinds are all of them.
var WaitKinds = []WaitKind{WaitForDetach, WaitForUnowned, WaitForVolume, WaitForNode, WaitForWorker, WaitForDriver, WaitForConfiguration}
