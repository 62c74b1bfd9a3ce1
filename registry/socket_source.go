package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// askAgain is after how long a driver that has answered is asked for its name again.
const askAgain = 30 * time.Second

// SocketOptions of the Source that NewSocketSource returns.
type SocketOptions struct {
	// Glob says which sockets to look at: an absolute path as for filepath.Match. Required.
	Glob string
	// Ask returns the name of the driver that listens at an endpoint, or why there is
	// none. It is called for several endpoints at once. Required.
	Ask func(ctx context.Context, endpoint Endpoint) (name string, err error)

	Poll       time.Duration // how often the sockets are looked for; zero means 2s
	AskTimeout time.Duration // of one Ask; zero means 10s
	Away       time.Duration // how long a socket may be gone before its driver is; zero means 1m
}

// socketSource is the Source of the drivers that answer on sockets.
type socketSource struct{ SocketOptions }

// NewSocketSource returns the Source of the drivers that answer on the sockets of
// a glob and report their names. A driver is known once it has answered, and stays while
// its socket is there, whether it answers or not. The first set comes when every
// socket has answered, or after one Poll: a driver that hangs does not delay the others.
func NewSocketSource(o SocketOptions) (Source, error) {
	if o.Ask == nil {
		return nil, errors.New("registry: SocketOptions.Ask is missing")
	}
	if err := checkGlob(o.Glob); err != nil {
		return nil, fmt.Errorf("registry: SocketOptions.Glob: %w", err)
	}
	if d := min(o.Poll, o.AskTimeout, o.Away); d < 0 {
		return nil, fmt.Errorf("registry: a duration in SocketOptions is %v, it must not be negative", d)
	}
	o.Poll = cmp.Or(o.Poll, 2*time.Second)
	o.AskTimeout = cmp.Or(o.AskTimeout, askTimeout)
	o.Away = cmp.Or(o.Away, time.Minute)
	return socketSource{o}, nil
}

// Name implements Source.
func (s socketSource) Name() string { return "sockets " + s.Glob }

// Run implements Source.
func (s socketSource) Run(ctx context.Context, send func([]Driver)) error {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	send = sendChanges(send)
	answers := make(chan answer)
	known := sockets{}
	update := func() {
		for _, one := range known.update(s.scan(), time.Now(), s.Away) {
			var askCtx context.Context
			askCtx, one.cancel = context.WithCancel(ctx)
			asking.Go(func() { s.ask(askCtx, one, answers) })
		}
	}
	poll := time.NewTicker(s.Poll)
	defer poll.Stop()
	update()
	for complete := false; ; {
		if complete = complete || known.allAnswered(); complete {
			send(known.drivers())
		}
		select {
		case <-ctx.Done():
			return nil
		case a := <-answers:
			known.answer(a.from, a.name)
		case <-poll.C:
			complete = true // a driver that hangs does not delay the others for longer
			update()
		}
	}
}

// answer is what came of asking a socket for the name of its driver.
type answer struct {
	from *socket
	name string // "" after an error
}

// ask asks a socket for the name of its driver, again and again until ctx ends: after an
// answer for askAgain, after an error sooner, with a delay that doubles.
func (s socketSource) ask(ctx context.Context, one *socket, answers chan<- answer) {
	logger := klog.FromContext(ctx)
	delay := time.Duration(0) // zero unless the last answer was an error
	for {
		name, err := askName(ctx, s.Ask, one.endpoint, s.AskTimeout)
		select {
		case answers <- answer{from: one, name: name}:
		case <-ctx.Done():
			return
		}
		wait := askAgain
		if err == nil {
			delay = 0
		} else {
			verbosity := 2
			if delay == 0 { // the first error, which nobody else would report
				verbosity = 0
			}
			logger.V(verbosity).Info("Socket did not report the name of its driver, will retry", "endpoint", one.endpoint, "err", err)
			delay = min(max(2*delay, s.Poll), askAgain)
			wait = delay
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// scan returns the sockets that there are, by their endpoints. What cannot be an
// endpoint is left out.
func (s socketSource) scan() map[Endpoint]os.FileInfo {
	found := map[Endpoint]os.FileInfo{}
	paths, _ := filepath.Glob(s.Glob) // the form was checked; what cannot be read is not there
	for _, path := range paths {
		endpoint, err := ParseEndpoint(unixScheme + path)
		if err != nil {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			found[endpoint] = info
		}
	}
	return found
}
