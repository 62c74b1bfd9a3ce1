package registry

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

const (
	defaultPoll     = 10 * time.Second
	defaultDebounce = 100 * time.Millisecond
)

// FileOptions of a File.
type FileOptions struct {
	// Path of the drivers.yaml. Required.
	Path string
	// Defaults hold for settings that neither a driver's entry nor the file's defaults
	// have. Zero means DefaultSettings.
	Defaults Settings
	// Poll is how often the file is read if no event says that it has changed. Zero
	// means 10 seconds.
	Poll time.Duration
	// Debounce is how long after its last change the file is read, and how long it must then stay
	// the same to be believed: half of a file may be a valid file. A file that changes all the
	// time is believed after ten times as long. Zero means 100 milliseconds.
	Debounce time.Duration
}

// File is the ConfigSource that reads a drivers.yaml, and follows the file while
// it changes: edited, replaced, or swapped with the folder of a ConfigMap. A file
// that is bad, empty or gone changes nothing but its FileStatus: the last good one
// holds until it is repaired.
type File struct {
	options    FileOptions
	reload     chan struct{}                     // of capacity 1
	newWatcher func() (*fsnotify.Watcher, error) // replaced by tests

	mu     sync.Mutex
	config *Config    // the last good one; guarded by mu
	status FileStatus // guarded by mu
}

// FileStatus is the result of the last reading of a drivers.yaml.
type FileStatus struct {
	Hash           string    // SHA-256 of the content that holds, in hex
	LastSuccess    time.Time // when a good file was read last
	LastSuccessful bool      // the file as it is now is the one that holds
	Errors         Errors    // of the file as it is now; not to be changed
}

// NewFile reads the file. It fails with Errors if the file is bad: a program without a last
// good one must not start. It starts no goroutine.
func NewFile(o FileOptions) (*File, error) {
	if o.Path == "" {
		return nil, errors.New("registry: FileOptions.Path is missing")
	}
	if o.Poll < 0 || o.Debounce < 0 {
		return nil, fmt.Errorf("registry: FileOptions.Poll is %v and Debounce %v, they must not be negative", o.Poll, o.Debounce)
	}
	o.Poll = cmp.Or(o.Poll, defaultPoll)
	o.Debounce = cmp.Or(o.Debounce, defaultDebounce)
	o.Defaults = cmp.Or(o.Defaults, DefaultSettings())
	if err := o.Defaults.Check(); err != nil {
		return nil, fmt.Errorf("registry: FileOptions.Defaults: %w", err)
	}
	c := readContent(o.Path)
	config, err := c.parse(o)
	if err != nil {
		return nil, err
	}
	return &File{
		options:    o,
		reload:     make(chan struct{}, 1),
		newWatcher: fsnotify.NewWatcher,
		config:     config,
		status:     FileStatus{Hash: c.id, LastSuccess: time.Now(), LastSuccessful: true},
	}, nil
}

// Name implements ConfigSource: the path.
func (f *File) Name() string { return f.options.Path }

// Config implements ConfigSource: what the last good file says.
func (f *File) Config() *Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config
}

// Status returns how the last reading went.
func (f *File) Status() FileStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Reload has Run read the file at once, and believe it. It does not block.
func (f *File) Reload() { notify(f.reload) }

// apply makes a new content of the file the one that holds, if it is good. It reports
// whether the Config changed: it does not if the file says again what it said before a
// mistake.
func (f *File) apply(logger klog.Logger, c content) (changed bool) {
	config, err := c.parse(f.options)
	f.mu.Lock()
	before := f.config.warnings
	if err != nil {
		f.status.LastSuccessful = false
		f.status.Errors, _ = errors.AsType[Errors](err)
	} else {
		if changed = c.id != f.status.Hash; changed {
			f.config = config
		}
		f.status = FileStatus{Hash: c.id, LastSuccess: time.Now(), LastSuccessful: true}
	}
	f.mu.Unlock()
	if err != nil {
		logger.Error(err, "New configuration rejected; the previous one stays active", "file", f.options.Path)
		return false
	}
	logger.Info("Configuration reloaded", "file", f.options.Path, "drivers", len(config.drivers), "hash", c.id, "changed", changed)
	for _, w := range config.warnings {
		if !slices.ContainsFunc(before, w.isLike) {
			w.Log(logger)
		}
	}
	return changed
}

// content is what the file was at one moment.
type content struct {
	id   string // differs for what is to be treated differently: the hash, or the error
	data []byte
	err  error // it could not be read
}

func readContent(path string) content {
	data, err := readFile(path)
	if err != nil {
		return content{id: "error: " + err.Error(), err: err}
	}
	sum := sha256.Sum256(data)
	return content{id: hex.EncodeToString(sum[:]), data: data}
}

// parse returns what the content says, or what is wrong with it.
func (c content) parse(o FileOptions) (*Config, error) {
	if c.err != nil {
		return nil, Errors{{File: o.Path, Message: c.err.Error()}}
	}
	return (&parser{file: o.Path, base: o.Defaults}).parse(c.data)
}
