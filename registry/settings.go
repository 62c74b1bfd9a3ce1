package registry

import "time"

// DefaultSettings returns the settings of a driver about which nothing was said.
func DefaultSettings() Settings {
	return Settings{Timeout: 2 * time.Minute, Workers: 20, Retry: Retry{Initial: 500 * time.Millisecond, Max: time.Minute}}
}
