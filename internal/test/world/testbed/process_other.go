//go:build !linux

package testbed

import "syscall"

// processAttributes: only Linux can tie a child's life to this process.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
