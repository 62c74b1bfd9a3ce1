package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// child is this binary running as one component in a process of its own.
type child struct {
	role    string
	logPath string
	process *os.Process
	done    chan struct{} // closed when the process has ended and died has been told
}

// startChild starts the component; its output is appended to the log. When it
// ends, for whatever reason, died gets the error, if there is room.
func startChild(s *state, role string, args []string, died chan<- error) (*child, error) {
	logPath := s.path(role + ".log")
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own binary: %w", err)
	}
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", role, err)
	}
	cmd := exec.Command(self, append([]string{role}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	cmd.ExtraFiles = []*os.File{s.lock} // the folder is in use until the child has ended

	c := &child{role: role, logPath: logPath, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(c.done)
		defer log.Close()
		// The kernel counts the end of the thread that started a child as the
		// end of its parent, so this thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		select {
		case died <- c.describe(err):
		default:
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	c.process = cmd.Process
	return c, nil
}

// stop ends the process with SIGTERM, or SIGKILL after the grace, and waits.
func (c *child) stop(grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	// An error means that it has ended already.
	_ = c.process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-timer.C:
		_ = c.process.Kill()
		<-c.done
	}
}

// describe tells the end of the process with what it logged last.
func (c *child) describe(err error) error {
	how := "exit status 0"
	if err != nil {
		how = err.Error()
	}
	return fmt.Errorf("%s ended: %s\n%s", c.role, how, c.lastLines())
}

// lastLines returns the path and the end of the component's log, for an error.
func (c *child) lastLines() string {
	tail, err := tailFile(c.logPath, 15)
	if err != nil {
		return fmt.Sprintf("log: %s (%v)", c.logPath, err)
	}
	return fmt.Sprintf("log: %s, its last lines:\n%s", c.logPath, tail)
}

// tailFile returns the last lines of a file that may be large.
func tailFile(path string, lines int) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	const window = 32 << 10
	if _, err := f.Seek(-window, io.SeekEnd); err != nil && !errors.Is(err, syscall.EINVAL) {
		return "", err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return "", err
	}
	all := strings.Split(string(bytes.TrimRight(data, "\n")), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n"), nil
}
