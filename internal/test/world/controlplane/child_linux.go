package main

import "syscall"

// childAttributes let the kernel kill the child when this process is killed,
// and keep Ctrl-C in a terminal from it: the order of stopping is decided here.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
