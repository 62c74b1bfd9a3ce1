package testbed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
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

func TestControlPlaneLeavesNothingAndStartsAgainWithItsPortAndObjects(t *testing.T) {
	ctx := needsControlPlane(t)
	plane := OwnControlPlane(t, ControlPlaneOptions{})
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	server, err := url.Parse(plane.RESTConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	cluster := NewCluster(plane.Clientset())
	nodes, err := WatchNodes(ctx, plane.Clientset(), nil) // an open watch must not hold the stop
	if err != nil {
		t.Fatal(err)
	}
	defer nodes.Close()
	kubeconfig := readFile(t, plane.Kubeconfig())
	end := func(end func() error) {
		t.Helper()
		children := watchChildren(t, plane.Process().PID())
		if len(children) != 1 {
			t.Fatalf("the control plane has %d children, want kube-apiserver", len(children))
		}
		if err := end(); err != nil {
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
		if err := cluster.Create(ctx, Node{Name: "meanwhile"}); err == nil {
			t.Error("an ended control plane took a request")
		}
	}
	startAgain := func(created ...string) {
		t.Helper()
		if err := plane.StartAgain(ctx); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(kubeconfig, readFile(t, plane.Kubeconfig())) {
			t.Error("the kubeconfig is another one after the start")
		}
		if err := cluster.Create(ctx, Node{Name: created[len(created)-1]}); err != nil {
			t.Fatal(err)
		}
		if err := nodes.WaitFor(ctx, "the nodes in an informer of before", func(all []*corev1.Node) bool {
			return slices.Equal(nodeNames(all), created)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := cluster.Create(ctx, Node{Name: "1-before"}); err != nil {
		t.Fatal(err)
	}
	end(func() error { return plane.StopAPIServer(ctx) })
	startAgain("1-before", "2-stopped")
	end(func() error { plane.Kill(); return nil })
	startAgain("1-before", "2-stopped", "3-killed")
	plane.Kill()
	if err := plane.Stop(ctx); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(plane.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary folder is still there: %v", err)
	}
}

func nodeNames(nodes []*corev1.Node) []string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
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
