package lease

import (
	"maps"
	"sync"
	"testing"
	"time"
)

// servers notes which replica serves each driver.
type servers struct {
	t     *testing.T
	mu    sync.Mutex
	by    map[string]*replica
	since map[string]time.Time // when the driver lost its last server
	gap   time.Duration        // the longest time that a driver had no server
}

func newServers(t *testing.T) *servers {
	return &servers{t: t, by: map[string]*replica{}, since: map[string]time.Time{}}
}

func (s *servers) found(driver string, r *replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.by[driver]; other != nil {
		s.t.Errorf("%s and %s serve %s at once", other.options.Identity, r.options.Identity, driver)
	}
	s.by[driver] = r
	if lost, ok := s.since[driver]; ok {
		s.gap = max(s.gap, time.Since(lost))
		delete(s.since, driver)
	}
}

func (s *servers) lost(driver string, r *replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[driver] == r {
		delete(s.by, driver)
		s.since[driver] = time.Now()
	}
}

// longestGap returns the longest time for which a driver had no server since the last call.
func (s *servers) longestGap() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	gap := s.gap
	for _, lost := range s.since {
		gap = max(gap, time.Since(lost))
	}
	s.gap = 0
	return gap
}

// now returns which replica serves each driver.
func (s *servers) now() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[string]string{}
	for d, r := range s.by {
		now[d] = r.options.Identity
	}
	return now
}

// are checks that each driver is served by the replica to which it is assigned, and returns by which.
func (s *servers) are(drivers []string, replicas ...*replica) map[string]string {
	s.t.Helper()
	want, got := owners(drivers, replicas...), s.now()
	if !maps.Equal(got, want) {
		s.t.Errorf("drivers are served by:\n%v\nwant:\n%v", got, want)
	}
	return want
}

// owners returns to which of replicas each driver is assigned.
func owners(drivers []string, replicas ...*replica) map[string]string {
	var members []Member
	for _, r := range replicas {
		members = append(members, Member{Identity: r.options.Identity, Drivers: drivers})
	}
	return assign(members)
}
