package attach

import "sync"

// maxRemembered bounds each memo. A hub needs a few entries for each driver. But every client that
// may create VolumeAttachments can invent any number of drivers and field managers.
const maxRemembered = 4096

// memo keeps up to maxRemembered results of a function. Thousands of VolumeAttachments need few
// different results. The zero value is empty. It is safe for concurrent use.
type memo[K comparable, V any] struct {
	mu      sync.RWMutex
	results map[K]V
}

// get returns the result for a key, and calls compute if it is not known.
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
