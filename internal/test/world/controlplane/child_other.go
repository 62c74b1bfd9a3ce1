//go:build !linux

package main

import "syscall"

// childAttributes keep Ctrl-C in a terminal from the child: the order of
// stopping is decided here. Only Linux can tie its life to this process.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
