package lease

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// childEnv makes this test binary a process that competes for a lease: its value is
// kubeconfig, namespace and address of the service that it calls while it holds it.
const childEnv = "LEASE_TEST_CHILD"

const childCall = 400 * time.Millisecond // at most

func child() {
	if err := runChild(strings.Split(os.Getenv(childEnv), ",")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runChild(args []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	config.QPS = -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	l, err := New(Options{Kube: kube, Identity: NewIdentity(), Alone: true,
		Duration: time.Second, RenewDeadline: 700 * time.Millisecond, RetryPeriod: 150 * time.Millisecond})
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", args[2])
	if err != nil {
		return err
	}
	answers := bufio.NewReader(conn)
	go func() { _ = l.Run(context.Background()) }()
	return l.Hold(context.Background(), Candidacy{Driver: "d", Lease: Name{args[1], "d"}, Serve: func(stop context.Context, t *Term) error {
		for stop.Err() == nil {
			deadline := time.Now().Add(childCall)
			if t.Begin(childCall) != nil {
				pause(stop, 5*time.Millisecond)
				continue
			}
			if _, err := fmt.Fprintln(conn, os.Getpid(), deadline.UnixNano()); err != nil {
				return err
			}
			// Without a way to cancel it, the call is left to end by itself.
			if _, err := answers.ReadString('\n'); err != nil {
				return err
			}
		}
		return nil
	}})
}

// service is what the children call: it works on until it is done or the deadline of the
// call has passed, whatever becomes of who called. The end of a call is fixed as it begins:
// a busy machine that wakes the service late does not make a call longer.
type service struct {
	mu                       sync.Mutex
	calls, changes, overlaps int
	last                     int       // process that called last
	end                      time.Time // of the calls so far
}

// begin takes up a call and returns how long it works; without time left there is none.
func (s *service) begin(pid int, deadline time.Time) (d time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	d = min(deadline.Sub(now), rand.N(childCall))
	if d <= 0 {
		return 0, false
	}
	s.calls++
	if now.Before(s.end) {
		s.overlaps++
	}
	if end := now.Add(d); end.After(s.end) {
		s.end = end
	}
	if pid != s.last {
		s.last = pid
		s.changes++
	}
	return d, true
}

func (s *service) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var pid int
		var deadline int64 // Unix, nanoseconds: both processes have the same clock
		if _, err := fmt.Sscan(lines.Text(), &pid, &deadline); err != nil {
			fmt.Fprintln(conn, err)
			continue
		}
		if d, ok := s.begin(pid, time.Unix(0, deadline)); ok {
			time.Sleep(d)
		}
		fmt.Fprintln(conn, "done")
	}
}

func (s *service) caller() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// A process that is stopped for longer than its lease lasts, at any moment, also
// between the fence and the call and in the middle of a call, shares its work with nobody.
func TestAPausedProcessNeverWorksBesideItsSuccessor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var s service
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.serve(conn) })
		}
	})
	var children []*exec.Cmd
	for range 2 {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{w.plane.Kubeconfig(), w.namespace, listener.Addr().String()}, ","))
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		children = append(children, c)
		t.Cleanup(func() { _ = c.Process.Kill() }) // for when the test fails
	}
	for s.caller() == 0 && w.ctx.Err() == nil {
		pause(w.ctx, 10*time.Millisecond)
	}
	for range 10 {
		working := s.caller()
		paused := children[rand.N(len(children))]
		if rand.N(4) > 0 && children[0].Process.Pid == working {
			paused = children[0]
		} else if rand.N(4) > 0 && children[1].Process.Pid == working {
			paused = children[1]
		}
		signal(t, paused, syscall.SIGSTOP)
		pause(w.ctx, time.Duration(500+rand.N(1300))*time.Millisecond)
		signal(t, paused, syscall.SIGCONT)
		pause(w.ctx, time.Duration(rand.N(300))*time.Millisecond)
	}
	for _, c := range children {
		if err := c.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = c.Wait() // killed
	}
	listener.Close()
	serving.Wait()
	t.Logf("%d calls, %d changes of the caller", s.calls, s.changes)
	if s.overlaps > 0 {
		t.Errorf("%d of %d calls began while another was at work", s.overlaps, s.calls)
	}
	if s.changes < 2 {
		t.Error("the test did not test: the lease never changed hands")
	}
}

func signal(t *testing.T, c *exec.Cmd, s syscall.Signal) {
	t.Helper()
	if err := c.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
