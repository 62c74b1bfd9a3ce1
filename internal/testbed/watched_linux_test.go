package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// watchedProcess is somebody else's child; the kernel tells us when it ends.
type watchedProcess struct{ pid, fd int }

func watchProcess(t *testing.T, pid int) watchedProcess {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("watch process %d: %v", pid, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return watchedProcess{pid: pid, fd: fd}
}

// watchChildren watches the direct children of a process.
func watchChildren(t *testing.T, parent int) []watchedProcess {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	var children []watchedProcess
	for _, task := range tasks {
		data, err := os.ReadFile(task)
		if err != nil {
			continue // a thread that has ended has no children
		}
		for _, field := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			children = append(children, watchProcess(t, pid))
		}
	}
	return children
}

func (p watchedProcess) waitForEnd(t *testing.T) {
	t.Helper()
	polled := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(polled, int(testTimeout.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatalf("wait for the end of process %d: %v", p.pid, err)
		}
		if n == 0 {
			t.Errorf("process %d is still there", p.pid)
		}
		return
	}
}
