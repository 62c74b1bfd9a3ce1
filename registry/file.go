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
	// Path of the drivers.yaml, or of a folder of which each *.yaml is one. Required.
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

// File is the ConfigSource that reads a drivers.yaml, or each *.yaml of a folder, and follows
// them while they change: edited, replaced, or swapped with the folder of a ConfigMap. A file
// that is bad or empty changes nothing but the FileStatus: what it said last holds until it is
// repaired, while the other files of a folder apply. A single file, or a folder, that is gone
// is bad too.
type File struct {
	options    FileOptions
	reload     chan struct{}                     // of capacity 1
	newWatcher func() (*fsnotify.Watcher, error) // replaced by tests

	mu     sync.Mutex
	id     string     // of the content that was read last; guarded by mu
	loaded loaded     // the last good one; guarded by mu
	status FileStatus // guarded by mu
}

// FileStatus is the result of the last reading of a File.
type FileStatus struct {
	Hash           string    // SHA-256 of the content that holds, in hex
	LastSuccess    time.Time // when a good file was read last
	LastSuccessful bool      // the file as it is now is the one that holds
	Errors         Errors    // of the file as it is now; not to be changed
	Files          []FileState
}

// FileState is how one file was read.
type FileState struct {
	Path     string
	Mistakes int    // 0: it holds as it is now
	Instead  string // what holds instead, for people; "" without a mistake
}

// String says what happened to a file with mistakes.
func (s FileState) String() string {
	noun := "mistakes"
	if s.Mistakes == 1 {
		noun = "mistake"
	}
	return fmt.Sprintf("%s rejected (%d %s); %s", s.Path, s.Mistakes, noun, s.Instead)
}

// NewFile reads the file. It fails with Errors if the file is bad: a program without a last
// good one must not start. Of a folder one file must be good, and the one with defaults. It
// starts no goroutine.
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
	l := c.load(o, loaded{})
	if l.config == nil || len(l.good) == 0 {
		return nil, l.errors
	}
	return &File{
		options:    o,
		reload:     make(chan struct{}, 1),
		newWatcher: fsnotify.NewWatcher,
		id:         c.id,
		loaded:     l,
		status:     FileStatus{Hash: l.hash(), LastSuccess: time.Now(), LastSuccessful: l.errors == nil, Errors: l.errors, Files: l.states()},
	}, nil
}

// Name implements ConfigSource: the path.
func (f *File) Name() string { return f.options.Path }

// Config implements ConfigSource: what the last good file says.
func (f *File) Config() *Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loaded.config
}

// Status returns how the last reading went.
func (f *File) Status() FileStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// read returns the id of the content that was read last.
func (f *File) read() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id
}

// Reload has Run read the file at once, and believe it. It does not block.
func (f *File) Reload() { notify(f.reload) }

// apply makes a new content of the file the one that holds, as far as it is good. It reports whether the Config changed: it does
// not if the file says again what it said before a mistake.
func (f *File) apply(logger klog.Logger, c content) (changed bool) {
	f.mu.Lock()
	before := f.loaded
	next := c.load(f.options, before)
	hash := next.hash()
	if changed = hash != f.status.Hash || next.config.incomplete != before.config.incomplete; !changed {
		next.config = before.config
	}
	f.id, f.loaded = c.id, next
	f.status.Hash, f.status.Errors, f.status.LastSuccessful, f.status.Files = hash, next.errors, len(next.errors) == 0, next.states()
	if f.status.LastSuccessful {
		f.status.LastSuccess = time.Now()
	}
	is := f.status
	f.mu.Unlock()
	is.log(logger)
	if next.errors == nil || changed {
		logger.Info("Configuration reloaded", "file", f.options.Path, "drivers", len(next.config.drivers), "hash", hash, "changed", changed)
	}
	for _, w := range next.config.warnings {
		if !slices.ContainsFunc(before.config.warnings, w.isLike) {
			w.Log(logger)
		}
	}
	return changed
}

// log logs the mistakes of each file.
func (s FileStatus) log(logger klog.Logger) {
	for _, f := range s.Files {
		if f.Mistakes > 0 {
			logger.Error(slices.DeleteFunc(slices.Clone(s.Errors), func(e Error) bool { return e.File != f.Path }), "Configuration file rejected; "+f.Instead, "file", f.Path)
		}
	}
}

// content is what the file, or the folder, was at one moment.
type content struct {
	id    string // differs for what is to be treated differently
	files []fileContent
	err   error // it could not be read
}

func readContent(path string) content {
	c := content{}
	c.files, c.err = readFiles(path)
	h := sha256.New()
	fmt.Fprintln(h, c.err)
	for _, f := range c.files {
		fmt.Fprintln(h, f.path, f.err, len(f.data))
		h.Write(f.data)
	}
	c.id = hex.EncodeToString(h.Sum(nil))
	return c
}

// load returns the configuration that the content makes after another one.
func (c content) load(o FileOptions, last loaded) loaded {
	if c.err != nil {
		return last.keep(Errors{{File: o.Path, Message: c.err.Error()}})
	}
	return load(c.files, o.Defaults, last)
}
