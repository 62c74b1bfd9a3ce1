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

// Defaults of SocketOptions.
const (
	defaultSocketPoll = 2 * time.Second
	defaultAskTimeout = 10 * time.Second
	defaultAskAgain   = 30 * time.Second
	defaultAway       = time.Minute
)

// SocketOptions of the Source that NewSocketSource returns.
type SocketOptions struct {
	// Glob says which sockets to look at: an absolute path as for filepath.Match. Required.
	Glob string
	// Ask returns the name of the driver that listens at an endpoint, or why there is
	// none. It is called for several endpoints at once. Required.
	Ask func(ctx context.Context, endpoint Endpoint) (name string, err error)

	Poll       time.Duration // how often the sockets are looked for; zero means 2s
	AskTimeout time.Duration // of one Ask; zero means 10s
	AskAgain   time.Duration // after this long a driver is asked for its name again; zero means 30s
	Away       time.Duration // how long a socket may be gone before its driver is; zero means 1m
}

// withDefaults checks the options and fills in what was left out.
func (o SocketOptions) withDefaults() (SocketOptions, error) {
	if o.Ask == nil {
		return o, errors.New("registry: SocketOptions.Ask is missing")
	}
	if err := checkGlob(o.Glob); err != nil {
		return o, fmt.Errorf("registry: SocketOptions.Glob: %w", err)
	}
	for _, d := range []time.Duration{o.Poll, o.AskTimeout, o.AskAgain, o.Away} {
		if d < 0 {
			return o, fmt.Errorf("registry: a duration in SocketOptions is %v, it must not be negative", d)
		}
	}
	o.Poll = cmp.Or(o.Poll, defaultSocketPoll)
	o.AskTimeout = cmp.Or(o.AskTimeout, defaultAskTimeout)
	o.AskAgain = cmp.Or(o.AskAgain, defaultAskAgain)
	o.Away = cmp.Or(o.Away, defaultAway)
	return o, nil
}

// socketSource is the Source of the drivers that answer on sockets.
type socketSource struct {
	options SocketOptions
}

// NewSocketSource returns the Source of the drivers that answer on the sockets of
// a glob and report their names. A driver is known once it has answered, and stays while
// its socket is there, whether it answers or not. The first set comes when every
// socket has answered, or after one Poll: a driver that hangs does not delay the others.
func NewSocketSource(o SocketOptions) (Source, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return socketSource{options: o}, nil
}

// Name implements Source.
func (s socketSource) Name() string { return "sockets " + s.options.Glob }

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
		for _, one := range known.update(s.scan(), time.Now(), s.options.Away) {
			var askCtx context.Context
			askCtx, one.cancel = context.WithCancel(ctx)
			asking.Go(func() { s.ask(askCtx, one, answers) })
		}
	}
	poll := time.NewTicker(s.options.Poll)
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
			known.answer(a)
		case <-poll.C:
			complete = true // a driver that hangs does not delay the others for longer
			update()
		}
	}
}

// answer is what came of asking a socket for the name of its driver.
type answer struct {
	from *socket
	name string
	err  error
}

// ask asks a socket for the name of its driver, again and again until ctx ends: after an
// answer for the time AskAgain, after an error sooner, with a delay that doubles.
func (s socketSource) ask(ctx context.Context, one *socket, answers chan<- answer) {
	logger := klog.FromContext(ctx)
	delay := time.Duration(0) // zero unless the last answer was an error
	for {
		name, err := s.askOnce(ctx, one.endpoint)
		select {
		case answers <- answer{from: one, name: name, err: err}:
		case <-ctx.Done():
			return
		}
		wait := s.options.AskAgain
		if err == nil {
			delay = 0
		} else {
			verbosity := 2
			if delay == 0 { // the first error, which nobody else would report
				verbosity = 0
			}
			logger.V(verbosity).Info("A socket did not tell its driver, asking it again and again", "endpoint", one.endpoint, "problem", err)
			delay = min(max(2*delay, s.options.Poll), s.options.AskAgain)
			wait = delay
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

func (s socketSource) askOnce(ctx context.Context, endpoint Endpoint) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.AskTimeout)
	defer cancel()
	name, err := s.options.Ask(ctx, endpoint)
	if err == nil && name == "" {
		err = errors.New("the driver has no name")
	}
	return name, err
}

// scan returns the sockets that there are, by their endpoints. What cannot be an
// endpoint is left out.
func (s socketSource) scan() map[Endpoint]os.FileInfo {
	found := map[Endpoint]os.FileInfo{}
	paths, _ := filepath.Glob(s.options.Glob) // the form was checked; what cannot be read is not there
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
