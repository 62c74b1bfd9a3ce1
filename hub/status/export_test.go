package status

import "net"

// WaitKinds are all of them.
var WaitKinds = []WaitKind{WaitForDetach, WaitForUnowned, WaitForVolume, WaitForNode, WaitForWorker, WaitForDriver, WaitForConfiguration}

// Addr returns the address that a Server listens on after Listen.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }
