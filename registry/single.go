package registry

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

const (
	singleAskAgain     = time.Second
	singleTriesPerLine = 60 // of the log
)

// Single is the ConfigSource of one driver whose name is not known. It asks at the endpoint for the name until a driver answers. A driver that is known
// stays, also while it does not answer.
type Single struct {
	driver Driver // without its name
	ask    func(ctx context.Context, endpoint Endpoint) (name string, err error)
	config atomic.Pointer[Config]
}

// NewSingle returns the source of a driver that has all but its name, which ask returns. ask must return in bounded time. It fails if the settings are out of range.
func NewSingle(d Driver, ask func(ctx context.Context, endpoint Endpoint) (name string, err error)) (*Single, error) {
	if err := d.Settings.Check(); err != nil {
		return nil, fmt.Errorf("registry: settings of the driver: %w", err)
	}
	s := &Single{driver: d, ask: ask}
	s.config.Store(&Config{drivers: Snapshot{}, defaults: d.Settings})
	return s, nil
}

// Name implements ConfigSource.
func (s *Single) Name() string { return s.driver.Source }

// Config implements ConfigSource: no driver until its name is known.
func (s *Single) Config() *Config { return s.config.Load() }

// Run implements ConfigSource.
func (s *Single) Run(ctx context.Context, changed func()) {
	logger := klog.FromContext(ctx)
	for tries := 0; ; tries++ {
		name, err := s.ask(ctx, s.driver.Endpoint)
		if err == nil {
			err = CheckName(name)
		}
		if err == nil {
			logger.Info("Driver reported its name", "driver", name, "endpoint", s.driver.Endpoint)
			d := s.driver
			d.Name = name
			s.config.Store(&Config{drivers: Snapshot{name: d}, defaults: d.Settings})
			changed()
			break
		}
		if tries%singleTriesPerLine == 0 {
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
