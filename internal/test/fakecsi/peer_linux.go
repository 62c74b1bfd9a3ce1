package fakecsi

import (
	"net"
	"syscall"
)

// peerPID returns the process that has made a connection (unix(7), SO_PEERCRED); 0: not known.
func peerPID(c *net.UnixConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	// An error means that the connection is closed.
	_ = raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}
