package registry

import (
	"errors"

	"github.com/fsnotify/fsnotify"
)

// Merge is merge, for tests.
func Merge(c *Config, found []Driver) (Snapshot, []Conflict) { return merge(c, found) }

// WithoutWatcher makes a File poll only, as if inotify were exhausted.
func (f *File) WithoutWatcher() *File {
	f.newWatcher = func() (*fsnotify.Watcher, error) { return nil, errors.New("too many open files") }
	return f
}

// ParseFile reads a drivers.yaml.
func ParseFile(path string) (*Config, error) {
	all, err := ParseManifestFile(path)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}
