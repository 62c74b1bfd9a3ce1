package registry

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

const (
	defaultPoll     = 10 * time.Second
	defaultDebounce = 100 * time.Millisecond
	// longestUnrest is the number of debounces for which changes keep a file from being read.
	longestUnrest = 10
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
	// the same to be believed: half of a file may be a valid file. Zero means 100 milliseconds.
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
	used       string                            // id of the content that was believed last; of Run alone

	mu     sync.Mutex
	config *Config    // the last good one; guarded by mu
	status FileStatus // guarded by mu
}

// FileStatus is the result of the last reading of a File.
type FileStatus struct {
	Hash        string    // SHA-256 of the content that holds, in hex
	LastSuccess time.Time // when a good file was read last
	Errors      Errors    // of the file as it is now, none if it holds; not to be changed
	Files       []FileState
}

// FileState is how one file was read.
type FileState struct {
	Path     string
	Rejected string // what happened to a file with mistakes, for people; "" if it holds as it is now
	instead  string // what holds instead
}

// NewFile reads the file. It fails with Errors if the file is bad: a program without a last
// good one must not start. Of a folder one file must be good, and the one with defaults. It
// starts no goroutine.
func NewFile(o FileOptions) (*File, error) {
	o.Poll = cmp.Or(o.Poll, defaultPoll)
	o.Debounce = cmp.Or(o.Debounce, defaultDebounce)
	o.Defaults = cmp.Or(o.Defaults, DefaultSettings())
	if err := o.Defaults.Check(); err != nil {
		return nil, fmt.Errorf("registry: FileOptions.Defaults: %w", err)
	}
	c := readContent(o.Path)
	config, errs := c.load(o.Defaults, nil)
	if config == nil || len(config.good) == 0 {
		return nil, errs
	}
	return &File{
		options: o, reload: make(chan struct{}, 1), newWatcher: fsnotify.NewWatcher, used: c.id, config: config,
		status: FileStatus{Hash: config.hash(), LastSuccess: time.Now(), Errors: errs, Files: config.states(errs, false)},
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

// Run implements ConfigSource. The file is read when something in its folder has changed and then nothing for the debounce, and
// after every poll, which finds what events miss. A content that is the same after another debounce is believed.
func (f *File) Run(ctx context.Context, changed func()) {
	logger := klog.FromContext(ctx)
	f.Status().log(logger)
	watcher, noWatcher := f.newWatcher()
	watcher = cmp.Or(watcher, &fsnotify.Watcher{}) // without events
	if noWatcher == nil {
		defer func() { _ = watcher.Close() }() // nothing depends on it any more
	}
	problem := f.watch(logger, watcher, noWatcher, "")
	poll := time.NewTicker(f.options.Poll)
	defer poll.Stop()
	var due <-chan time.Time // of the next reading; nil if no change is expected
	var began time.Time      // when a change was expected first
	seen := f.used           // id of the content that was read last
	expectChange := func() {
		if due == nil {
			began = time.Now()
		}
		if due == nil || time.Since(began) < longestUnrest*f.options.Debounce {
			due = time.After(f.options.Debounce)
		}
	}
	expectChange() // it may have changed before it was watched
	for {
		believe := false
		select {
		case <-ctx.Done():
			return
		case <-watcher.Events:
			expectChange()
			continue
		case <-watcher.Errors: // events may be lost
			expectChange()
			continue
		case <-poll.C:
			problem = f.watch(logger, watcher, noWatcher, problem)
			expectChange()
			continue
		case <-f.reload:
			believe = true
		case <-due:
		}
		c := readContent(f.options.Path)
		due = nil
		if believe || c.id == seen || c.id == f.used {
			if c.id != f.used && f.apply(logger, c) {
				changed()
			}
		} else {
			due = time.After(f.options.Debounce)
		}
		seen = c.id
	}
}

// watch watches the folder of the file, also if that was replaced. It logs a problem that is not the last one, and returns it.
func (f *File) watch(logger klog.Logger, watcher *fsnotify.Watcher, err error, last string) (problem string) {
	folder := f.options.Path
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		folder = filepath.Dir(folder)
	}
	if err == nil {
		err = watcher.Add(folder)
	}
	if err == nil {
		return ""
	}
	if err.Error() != last {
		logger.Info("Cannot watch the folder of the configuration, polling the file instead", "folder", folder, "err", err)
	}
	return err.Error()
}

// apply makes a new content of the file the one that holds, as far as it is good. It reports whether the Config changed: it does
// not if the file says again what it said before a mistake.
func (f *File) apply(logger klog.Logger, c content) (changed bool) {
	before := f.Config()
	next, errs := c.load(f.options.Defaults, before)
	hash := next.hash()
	f.mu.Lock()
	changed = hash != f.status.Hash || next.incomplete != before.incomplete
	f.used, f.config = c.id, next
	f.status.Hash, f.status.Errors, f.status.Files = hash, errs, next.states(errs, next == before)
	if errs == nil {
		f.status.LastSuccess = time.Now()
	}
	is := f.status
	f.mu.Unlock()
	is.log(logger)
	if errs == nil || changed {
		logger.Info("Configuration reloaded", "file", f.options.Path, "drivers", len(next.drivers), "hash", hash, "changed", changed)
	}
	for _, w := range next.warnings {
		if !slices.ContainsFunc(before.warnings, w.isLike) {
			w.Log(logger)
		}
	}
	return changed
}

// log logs the mistakes of each file.
func (s FileStatus) log(logger klog.Logger) {
	for _, f := range s.Files {
		if f.Rejected != "" {
			own := slices.DeleteFunc(slices.Clone(s.Errors), func(e Error) bool { return e.File != f.Path })
			logger.Error(own, "Configuration file rejected; "+f.instead, "file", f.Path)
		}
	}
}
