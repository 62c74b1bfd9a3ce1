package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Times of a Single.
const (
	singleAskAgain = time.Second
	singleSayAgain = time.Minute
)

// SingleOptions of a Single.
type SingleOptions struct {
	// Endpoint is where the driver listens, or will. Required.
	Endpoint Endpoint
	// Settings is how the driver is to be served. Required.
	Settings Settings
	// Ask returns the name of the driver that listens at an endpoint, or why there is
	// none. Required.
	Ask func(ctx context.Context, endpoint Endpoint) (name string, err error)
	// Source is what Driver.Source is to be: where somebody said that the driver is to
	// be served. Required.
	Source string
}

// Single is the ConfigSource of one driver of which nothing but the endpoint is
// known. It asks there for the name until somebody answers, for ever. A driver that
// is known stays: that it is away is no reason to serve none.
type Single struct {
	options SingleOptions

	mu     sync.Mutex
	config *Config // guarded by mu
}

// NewSingle checks the options. It contacts nobody.
func NewSingle(o SingleOptions) (*Single, error) {
	if o.Ask == nil || o.Source == "" {
		return nil, errors.New("registry: SingleOptions.Ask and Source must both be set")
	}
	if _, err := ParseEndpoint(string(o.Endpoint)); err != nil {
		return nil, fmt.Errorf("registry: SingleOptions.Endpoint: %w", err)
	}
	if err := o.Settings.Check(); err != nil {
		return nil, fmt.Errorf("registry: SingleOptions.Settings: %w", err)
	}
	return &Single{options: o, config: &Config{drivers: Snapshot{}, defaults: o.Settings}}, nil
}

// Name implements Source.
func (s *Single) Name() string { return s.options.Source }

// Config implements ConfigSource: no driver until its name is known.
func (s *Single) Config() *Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// Run implements Source. The first set comes at once, and is empty if nobody has
// told the name yet.
func (s *Single) Run(ctx context.Context, out chan<- []Driver) error {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	box := outbox{out: out}
	box.put(s.Config().drivers.list())
	known := make(chan struct{})
	asking.Go(func() {
		if s.learn(ctx) {
			close(known)
		}
	})
	for {
		select {
		case <-ctx.Done():
			return nil
		case box.channel() <- box.latest:
			box.sent()
		case <-known:
			known = nil
			box.put(s.Config().drivers.list())
		}
	}
}

// learn asks for the name until it is known. It returns false if ctx ended before.
func (s *Single) learn(ctx context.Context) bool {
	logger := klog.FromContext(ctx)
	said := complaint{every: singleSayAgain}
	for len(s.Config().drivers) == 0 {
		name, err := s.ask(ctx)
		if err == nil {
			logger.Info("The driver told its name", "driver", name, "endpoint", s.options.Endpoint)
			s.use(name)
			return true
		}
		if ctx.Err() == nil && said.isDue(err, time.Now()) {
			logger.Info("The driver has not told its name yet, asking it again", "endpoint", s.options.Endpoint, "problem", err)
		}
		select {
		case <-time.After(singleAskAgain):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// ask asks once for a name that a driver can have.
func (s *Single) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultAskTimeout)
	defer cancel()
	name, err := s.options.Ask(ctx, s.options.Endpoint)
	if err != nil {
		return "", err
	}
	return name, checkName(name)
}

// use makes a Config with the driver the one that holds.
func (s *Single) use(name string) {
	o := s.options
	config := &Config{
		drivers:  Snapshot{name: {Name: name, Endpoint: o.Endpoint, Settings: o.Settings, Source: o.Source}},
		defaults: o.Settings,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = config
}

// complaint says when a problem is to be logged that comes again and again: when it
// is another one, and from time to time.
type complaint struct {
	every time.Duration
	last  string
	at    time.Time
}

func (c *complaint) isDue(problem error, now time.Time) bool {
	if problem.Error() == c.last && now.Sub(c.at) < c.every {
		return false
	}
	c.last, c.at = problem.Error(), now
	return true
}
