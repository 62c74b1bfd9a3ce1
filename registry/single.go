package registry

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Times of a Single.
const (
	singleAskTimeout = 10 * time.Second // for one answer
	singleAskAgain   = time.Second
	singleLogAgain   = time.Minute
)

// Single is the ConfigSource of one driver whose name is not known. It asks at the endpoint for the name until a driver answers. A driver that is known
// stays, also while it does not answer.
type Single struct {
	driver Driver // without its name
	ask    func(ctx context.Context, endpoint Endpoint) (name string, err error)

	mu     sync.Mutex
	config *Config // guarded by mu
}

// NewSingle returns the source of a driver that has all but its name, which ask returns. It fails if the settings are out of range.
func NewSingle(d Driver, ask func(ctx context.Context, endpoint Endpoint) (name string, err error)) (*Single, error) {
	if err := d.Settings.Check(); err != nil {
		return nil, fmt.Errorf("registry: settings of the driver: %w", err)
	}
	return &Single{driver: d, ask: ask, config: &Config{drivers: Snapshot{}, defaults: d.Settings}}, nil
}

// Name implements ConfigSource.
func (s *Single) Name() string { return s.driver.Source }

// Config implements ConfigSource: no driver until its name is known.
func (s *Single) Config() *Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// Run implements ConfigSource.
func (s *Single) Run(ctx context.Context, changed func()) {
	logger := klog.FromContext(ctx)
	var last string // the problem that was logged last
	var loggedAt time.Time
	for {
		name, err := s.askName(ctx)
		if err == nil {
			logger.Info("Driver reported its name", "driver", name, "endpoint", s.driver.Endpoint)
			s.use(name)
			changed()
			break
		}
		if ctx.Err() == nil && (err.Error() != last || time.Since(loggedAt) >= singleLogAgain) {
			last, loggedAt = err.Error(), time.Now()
			logger.Info("Driver has not reported its name yet, will retry", "endpoint", s.driver.Endpoint, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(singleAskAgain):
		}
	}
	<-ctx.Done()
}

func (s *Single) askName(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, singleAskTimeout)
	defer cancel()
	name, err := s.ask(ctx, s.driver.Endpoint)
	if err == nil {
		err = CheckName(name)
	}
	return name, err
}

// use makes a Config with the driver the one that holds.
func (s *Single) use(name string) {
	d := s.driver
	d.Name = name
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = &Config{drivers: Snapshot{name: d}, defaults: d.Settings}
}
