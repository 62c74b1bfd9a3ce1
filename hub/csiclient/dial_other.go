//go:build !linux

package csiclient

import "syscall"

// setUserTimeout does nothing where there is no such timeout; the probes of TCP and
// of CSI find out then.
func setUserTimeout(string, string, syscall.RawConn) error { return nil }
