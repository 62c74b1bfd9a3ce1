package registry

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

const (
	// filePoll is how often the file is read if no event says that it has changed.
	filePoll = 10 * time.Second
	// fileDebounce is how long after its last change the file is read, and how long it must then stay
	// the same to be believed: half of a file may be a valid file.
	fileDebounce = 100 * time.Millisecond
	// longestUnrest is the number of debounces for which changes keep a file from being read.
	longestUnrest = 10
)

// File is the ConfigSource that reads a drivers.yaml, or each *.yaml of a folder, and follows
// them while they change: edited, replaced, or swapped with the folder of a ConfigMap. A file
// that is bad or empty changes nothing but the FileStatus: what it said last holds until it is
// repaired, while the other files of a folder apply. A single file, or a folder, that is gone
// is bad too.
type File struct {
	path           string
	defaults       Settings
	poll, debounce time.Duration                     // replaced by tests
	newWatcher     func() (*fsnotify.Watcher, error) // replaced by tests
	reload         chan struct{}                     // of capacity 1
	used           string                            // id of the content that was believed last; of Run alone

	config atomic.Pointer[Config] // the last good one
	status atomic.Pointer[FileStatus]
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

// NewFile reads a drivers.yaml, or a folder of which each *.yaml is one, with the settings that hold where they say nothing. It fails
// with Errors if the file is bad: a program without a last good one must not start. Of a folder one file must be good, and the one with
// defaults. It starts no goroutine.
func NewFile(path string, defaults Settings) (*File, error) {
	if err := defaults.Check(); err != nil {
		return nil, fmt.Errorf("registry: defaults: %w", err)
	}
	c := readContent(path)
	config, errs := c.load(defaults, nil)
	if config == nil || len(config.good) == 0 {
		return nil, errs
	}
	f := &File{
		path: path, defaults: defaults, poll: filePoll, debounce: fileDebounce, newWatcher: fsnotify.NewWatcher,
		reload: make(chan struct{}, 1), used: c.id,
	}
	f.config.Store(config)
	f.status.Store(&FileStatus{Hash: config.hash(), LastSuccess: time.Now(), Errors: errs, Files: config.states(errs, false)})
	return f, nil
}

// Name implements ConfigSource: the path.
func (f *File) Name() string { return f.path }

// Config implements ConfigSource: what the last good file says.
func (f *File) Config() *Config { return f.config.Load() }

// Status returns how the last reading went.
func (f *File) Status() FileStatus { return *f.status.Load() }

// Reload has Run read the file without waiting for an event. It does not block.
func (f *File) Reload() { notify(f.reload) }

// Run implements ConfigSource. The file is read when something in its folder has changed and then nothing for the debounce, and
// after every poll, which finds what events miss. A content that is the same after another debounce is believed.
func (f *File) Run(ctx context.Context, changed func()) {
	logger := klog.FromContext(ctx)
	f.Status().log(logger)
	watcher, noWatcher := f.newWatcher()
	if noWatcher == nil {
		defer start(ctx, func(context.Context) { forward(watcher.Events, f.reload) })()
		defer start(ctx, func(context.Context) { forward(watcher.Errors, f.reload) })() // events may be lost
		// Deferred last, so that it runs first: it ends both. Its error changes nothing.
		defer func() { _ = watcher.Close() }()
	}
	f.watch(logger, watcher, noWatcher)
	poll := time.NewTicker(f.poll)
	defer poll.Stop()
	var due <-chan time.Time // of the next reading; nil if no change is expected
	var began time.Time      // when a change was expected first
	seen := f.used           // id of the content that was read last
	expectChange := func() {
		if due == nil {
			began = time.Now()
		}
		if due == nil || time.Since(began) < longestUnrest*f.debounce {
			due = time.After(f.debounce)
		}
	}
	expectChange() // it may have changed before it was watched
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.reload:
			expectChange()
		case <-poll.C:
			expectChange()
		case <-due:
			f.watch(klog.Logger{}, watcher, noWatcher) // before the reading: a later change in that folder is an event
			c := readContent(f.path)
			if due = nil; c.id != seen && c.id != f.used {
				due = time.After(f.debounce)
			} else if c.id != f.used && f.apply(logger, c) {
				changed()
			}
			seen = c.id
		}
	}
}

// forward notifies of each event, or error, until the watcher is closed. Errors need a goroutine of their own: fsnotify may
// hold its lock until one is received, and Run waits for that lock in watch.
func forward[T any](events <-chan T, reload chan<- struct{}) {
	for range events {
		notify(reload)
	}
}

// watch watches the folder of the file, also if that was replaced, or logs why not.
func (f *File) watch(logger klog.Logger, watcher *fsnotify.Watcher, err error) {
	folder := f.path
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		folder = filepath.Dir(folder)
	}
	if err == nil {
		err = watcher.Add(folder)
	}
	if err != nil {
		logger.Info("Cannot watch the folder of the configuration, polling the file instead", "folder", folder, "err", err)
	}
}

// apply makes a new content of the file the one that holds, as far as it is good. It reports whether the Config changed: it does
// not if the file says again what it said before a mistake.
func (f *File) apply(logger klog.Logger, c content) (changed bool) {
	before := f.Config()
	next, errs := c.load(f.defaults, before)
	is := FileStatus{Hash: next.hash(), LastSuccess: f.Status().LastSuccess, Errors: errs, Files: next.states(errs, next == before)}
	changed = is.Hash != f.Status().Hash || next.incomplete != before.incomplete || next.defaults != before.defaults ||
		!maps.Equal(next.drivers, before.drivers) || next.discovery.Enabled && len(next.rejected) != len(before.rejected)
	if errs == nil {
		is.LastSuccess = time.Now()
	}
	f.used = c.id
	f.config.Store(next)
	f.status.Store(&is)
	is.log(logger)
	if errs == nil || changed {
		logger.Info("Configuration reloaded", "file", f.path, "drivers", len(next.drivers), "hash", is.Hash, "changed", changed)
	}
	for _, w := range next.warnings {
		logger.Info("Configuration warning", "warning", w.String())
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
