package csiclient

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// setUserTimeout bounds how long data that was sent over TCP may be unacknowledged.
func setUserTimeout(network, _ string, raw syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return failed
}
