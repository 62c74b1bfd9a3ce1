package attach

import "sync"

// maxRemembered bounds each memo. A hub needs some entries for each driver; but anybody who may
// create VolumeAttachments can make any number of drivers and field managers up.
const maxRemembered = 4096

// memo remembers the results of a function, at most maxRemembered of them. Few of them differ
// among thousands of VolumeAttachments. The zero value is empty. It is safe for concurrent use.
type memo[K comparable, V any] struct {
	mu      sync.RWMutex
	results map[K]V
}

// get returns the result for a key, which compute makes if it is not known.
func (m *memo[K, V]) get(key K, compute func() V) V {
	m.mu.RLock()
	result, known := m.results[key]
	m.mu.RUnlock()
	if known {
		return result
	}
	result = compute()
	m.mu.Lock()
	defer m.mu.Unlock()
	if first, known := m.results[key]; known {
		return first
	}
	if m.results == nil {
		m.results = map[K]V{}
	}
	if len(m.results) < maxRemembered {
		m.results[key] = result
	}
	return result
}
