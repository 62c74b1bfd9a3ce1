package testbed

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
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

func TestStoppedOrKilledControlPlaneLeavesNoProcessAndNoPort(t *testing.T) {
	ctx := needsControlPlane(t)
	for name, end := range map[string]func(*ControlPlane) error{
		"stopped": func(cp *ControlPlane) error { return cp.StopAPIServer(ctx) },
		"killed":  func(cp *ControlPlane) error { cp.Kill(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			plane := OwnControlPlane(t, ControlPlaneOptions{})
			// An open watch must not hold the stop.
			nodes, err := WatchNodes(ctx, plane.Clientset(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer nodes.Close()
			server, err := url.Parse(plane.RESTConfig().Host)
			if err != nil {
				t.Fatal(err)
			}
			children := watchChildren(t, plane.Process().PID())
			if len(children) != 1 {
				t.Fatalf("the control plane has %d children, want kube-apiserver", len(children))
			}

			if err := end(plane); err != nil {
				t.Fatal(err)
			}
			for _, child := range children {
				child.waitForEnd(t)
			}
			listener, err := net.Listen("tcp", server.Host)
			if err != nil {
				t.Errorf("the port of the API server is not free: %v", err)
			} else {
				listener.Close()
			}
			if err := plane.Stop(ctx); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(plane.Dir()); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the temporary folder is still there: %v", err)
			}
		})
	}
}

func TestProcessDiesWithTheOneThatStartedIt(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), helperEnv+"=parent")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	child := watchProcess(t, pid)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	child.waitForEnd(t)
}
