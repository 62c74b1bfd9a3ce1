package testbed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ProcessOptions say what to run.
type ProcessOptions struct {
	Name    string   // for errors, for example "hub"
	Path    string   // of the binary
	Args    []string // without the binary
	Env     []string // added to this process's environment
	LogPath string   // gets stdout and stderr, appended; its folder must exist
	// ReadyLine is the prefix of a line on stdout that says that the process
	// is ready; StartProcess waits for it. Empty: do not wait.
	ReadyLine string
}

func (o ProcessOptions) check() error {
	if o.Name == "" || o.Path == "" || o.LogPath == "" {
		return errors.New("start process: Name, Path and LogPath must be set")
	}
	return nil
}

// Process is a child process in a process group of its own, so Ctrl-C in a
// terminal does not reach it. When this process dies the kernel kills it.
// All methods may be called at any time, from any goroutine.
type Process struct {
	name      string
	logPath   string
	process   *os.Process
	readyLine string
	done      chan struct{} // closed when it has ended; err is set before
	err       error
}

// StartProcess starts a process and blocks until it has said that it is ready,
// if that is asked for. ctx bounds the start only: when it ends first, the
// process is killed. The caller must Stop or Kill the process.
func StartProcess(ctx context.Context, o ProcessOptions) (*Process, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(o.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", o.Name, err)
	}
	cmd := exec.Command(o.Path, o.Args...)
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.SysProcAttr = processAttributes()
	cmd.Stdout, cmd.Stderr = log, log
	ready := make(chan string, 1)
	var stdout io.ReadCloser
	if o.ReadyLine != "" {
		cmd.Stdout = nil
		if stdout, err = cmd.StdoutPipe(); err != nil {
			log.Close()
			return nil, fmt.Errorf("start %s: %w", o.Name, err)
		}
	}
	p := &Process{name: o.Name, logPath: o.LogPath, done: make(chan struct{})}
	started := make(chan error)
	go p.live(cmd, log, started, func() { copyLines(log, stdout, o.ReadyLine, ready) })
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	p.process = cmd.Process
	if o.ReadyLine == "" {
		return p, nil
	}
	select {
	case p.readyLine = <-ready:
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("start %s: it ended before it was ready: %w", o.Name, p.endError())
	case <-ctx.Done():
		p.Kill()
		return nil, fmt.Errorf("start %s: wait until it is ready: %w\n%s", o.Name, context.Cause(ctx), p.describeLog())
	}
}

// live runs for as long as the process does.
func (p *Process) live(cmd *exec.Cmd, log *os.File, started chan<- error, copyStdout func()) {
	defer close(p.done)
	defer log.Close()
	// The kernel takes the end of the thread that started a child for the end
	// of its parent, so this thread must live as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	started <- err
	if err != nil {
		return
	}
	copyStdout() // Wait closes the pipe, so all must have been read before
	p.err = cmd.Wait()
}

// copyLines copies stdout to the log and reports the first line that says
// ready. It returns when the process has closed its stdout.
func copyLines(log io.Writer, stdout io.Reader, prefix string, ready chan<- string) {
	if stdout == nil {
		return
	}
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			fmt.Fprint(log, line)
		}
		if err != nil {
			return
		}
		if strings.HasPrefix(line, prefix) {
			select {
			case ready <- strings.TrimSpace(line):
			default: // only the first counts
			}
		}
	}
}

// Name is what errors call the process.
func (p *Process) Name() string { return p.name }

// PID of the process, also after its end.
func (p *Process) PID() int { return p.process.Pid }

// ReadyLine is the line with which the process said that it is ready.
func (p *Process) ReadyLine() string { return p.readyLine }

// LogPath is the file that has all that the process printed.
func (p *Process) LogPath() string { return p.logPath }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait blocks until the process has ended: nil for exit code 0, else an error
// with its last log lines. When ctx ends first the process goes on.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.endError()
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of %s: %w", p.name, context.Cause(ctx))
	}
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ExitCode is -1 while the process runs and when a signal ended it.
func (p *Process) ExitCode() int {
	if !p.Ended() {
		return -1
	}
	if p.err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		return exit.ExitCode()
	}
	return -1
}

// Signal sends a signal to the process alone, not to its children. It is no
// error when the process has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// Pause stops the process where it is (SIGSTOP): its sockets stay open and
// answer nothing.
func (p *Process) Pause() error { return p.Signal(syscall.SIGSTOP) }

// Resume lets a paused process go on (SIGCONT).
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// Kill ends the process with SIGKILL and blocks until it has ended.
func (p *Process) Kill() {
	_ = p.process.Kill() // an error means that it has ended
	<-p.done
}

// Stop asks the process to end (SIGTERM) and blocks until it has: nil for exit
// code 0. A process that does not end within grace, or before ctx does, is
// killed, which is an error.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := p.Resume(); err != nil { // a paused process does not see SIGTERM
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, grace, fmt.Errorf("not ended %v after SIGTERM", grace))
	defer cancel()
	select {
	case <-p.done:
		return p.endError()
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("stop %s: killed: %w\n%s", p.name, context.Cause(ctx), p.describeLog())
	}
}

// endError describes a process that has ended, nil for exit code 0.
func (p *Process) endError() error {
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("%s (pid %d): %w\n%s", p.name, p.PID(), p.err, p.describeLog())
}

func (p *Process) describeLog() string {
	return fmt.Sprintf("log: %s, its last lines:\n%s", filepath.Base(p.logPath), p.LastLines(20))
}

// LastLines returns the end of the log.
func (p *Process) LastLines(n int) string {
	f, err := os.Open(p.logPath)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const window = 64 << 10
	// An error means that the file is shorter: then it is read from its start.
	_, _ = f.Seek(-window, io.SeekEnd)
	data, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(data), n)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// WhileRunning acts with a context that ends when one of the processes does. Then that is the
// error. It returns when act has.
func WhileRunning(ctx context.Context, processes []*Process, act func(context.Context) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer fail(nil)
	for _, p := range processes {
		watching.Go(func() {
			select {
			case <-p.Done():
				fail(fmt.Errorf("the %s has ended, exit code %d, its last lines:\n%s", p.name, p.ExitCode(), p.LastLines(20)))
			case <-ctx.Done():
			}
		})
	}
	err := act(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		// Not everything tells why a context has ended.
		return fmt.Errorf("%w: meanwhile: %w", cause, err)
	}
	return err
}
