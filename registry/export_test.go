package registry

import (
	"errors"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// Merge is merge, for tests.
func Merge(c *Config, found []Driver) (Snapshot, []Conflict) { return merge(c, found, nil) }

// WithoutWatcher makes a File poll only, as if inotify were exhausted.
func (f *File) WithoutWatcher() *File {
	f.newWatcher = func() (*fsnotify.Watcher, error) { return nil, errors.New("too many open files") }
	return f
}

// At makes a File poll and rest at other times.
func (f *File) At(poll, debounce time.Duration) *File {
	f.poll, f.debounce = poll, debounce
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

// Read reads the file at once. It reports whether the Config changed.
func (f *File) Read() bool { return f.apply(klog.Background(), readContent(f.path)) }

// MergeAfter is merge, for tests.
func MergeAfter(c *Config, found []Driver, last Snapshot) Snapshot {
	snapshot, _ := merge(c, found, last)
	return snapshot
}

// Parse reads the content of a drivers.yaml. It fails with Errors, which hold
// every mistake in it; they name it file.
func Parse(file string, data []byte) (*Config, error) {
	p := newParser(file)
	if config := p.parse(data, p.base); p.errors == nil {
		return config, nil
	}
	return nil, p.errors
}
