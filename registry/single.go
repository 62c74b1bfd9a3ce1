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
	singleLogAgain = time.Minute
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
	// Source becomes Driver.Source: where somebody asked for the driver. Required.
	Source string
}

// Single is the ConfigSource of one driver whose name is not known. It asks at the endpoint for the name until a driver answers. A driver that is known
// stays, also while it does not answer.
type Single struct {
	options SingleOptions

	mu     sync.Mutex
	config *Config // guarded by mu
}

// NewSingle checks the options. It contacts no driver.
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

// Name implements ConfigSource.
func (s *Single) Name() string { return s.options.Source }

// Config implements ConfigSource: no driver until its name is known.
func (s *Single) Config() *Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// Run implements ConfigSource.
func (s *Single) Run(ctx context.Context, changed func()) error {
	logger := klog.FromContext(ctx)
	var last string // the problem that was logged last
	var loggedAt time.Time
	for len(s.Config().drivers) == 0 {
		name, err := askName(ctx, s.options.Ask, s.options.Endpoint, askTimeout)
		if err == nil {
			err = CheckName(name)
		}
		if err == nil {
			logger.Info("Driver reported its name", "driver", name, "endpoint", s.options.Endpoint)
			s.use(name)
			changed()
			break
		}
		if ctx.Err() == nil && (err.Error() != last || time.Since(loggedAt) >= singleLogAgain) {
			last, loggedAt = err.Error(), time.Now()
			logger.Info("Driver has not reported its name yet, will retry", "endpoint", s.options.Endpoint, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(singleAskAgain):
		}
	}
	<-ctx.Done()
	return nil
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
