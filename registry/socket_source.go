package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	for _, d := range []struct {
		value     *time.Duration
		byDefault time.Duration
	}{
		{&o.Poll, defaultSocketPoll}, {&o.AskTimeout, defaultAskTimeout}, {&o.AskAgain, defaultAskAgain}, {&o.Away, defaultAway},
	} {
		if *d.value < 0 {
			return o, fmt.Errorf("registry: a duration in SocketOptions is %v, it must not be negative", *d.value)
		}
		if *d.value == 0 {
			*d.value = d.byDefault
		}
	}
	return o, nil
}

// socketSource is the Source of the drivers that answer on sockets.
type socketSource struct {
	options SocketOptions
}

// NewSocketSource returns the Source of the drivers that answer on the sockets of
// a glob and tell their names. A driver is known once it answered, and stays while
// its socket is there, whether it answers or not. The first set comes when every
// socket was asked, or after one Poll: a driver that hangs does not delay the others.
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
func (s socketSource) Run(ctx context.Context, out chan<- []Driver) error {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	answers := make(chan answer)
	box := outbox{out: out}
	known := sockets{}
	poll := time.NewTicker(s.options.Poll)
	defer poll.Stop()
	known.see(s.scan(), time.Now(), s.options)
	for waited := false; ; {
		for _, one := range known.toAsk(time.Now()) {
			asking.Go(func() { s.ask(ctx, one, answers) })
		}
		if waited || !known.unknown() || box.filled {
			box.put(known.drivers())
		}
		select {
		case <-ctx.Done():
			return nil
		case box.channel() <- box.latest:
			box.sent()
		case a := <-answers:
			if a.err != nil {
				verbosity := 2
				if a.from.delay == 0 { // the first failure, of which nobody else would tell
					verbosity = 0
				}
				logger.V(verbosity).Info("A socket did not tell its driver, asking it again and again", "endpoint", a.from.endpoint, "problem", a.err)
			}
			known.hear(a, time.Now(), s.options)
		case <-poll.C:
			waited = true
			known.see(s.scan(), time.Now(), s.options)
		}
	}
}

// answer is what came of asking a socket.
type answer struct {
	from *socket
	file os.FileInfo // the socket that was asked
	name string
	err  error
}

func (s socketSource) ask(ctx context.Context, q question, answers chan<- answer) {
	callCtx, cancel := context.WithTimeout(ctx, s.options.AskTimeout)
	defer cancel()
	name, err := s.options.Ask(callCtx, q.socket.endpoint)
	if err == nil && name == "" {
		err = errors.New("the driver has no name")
	}
	select {
	case answers <- answer{from: q.socket, file: q.file, name: name, err: err}:
	case <-ctx.Done():
	}
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

// sockets is what is known of the sockets of a glob.
type sockets map[Endpoint]*socket

// drivers returns the drivers that are known, in order of path.
func (s sockets) drivers() []Driver {
	var drivers []Driver
	for _, endpoint := range slices.Sorted(maps.Keys(s)) {
		if name := s[endpoint].name; name != "" {
			drivers = append(drivers, Driver{Name: name, Endpoint: endpoint, Source: "socket " + endpoint.Address()})
		}
	}
	return drivers
}
