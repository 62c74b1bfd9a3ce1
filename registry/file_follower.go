package registry

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// longestUnrest is the number of debounces after which a file that changes all the time is believed.
const longestUnrest = 10

// Run implements ConfigSource. The file is read when something in its folder changes, and
// at every poll, which finds what events miss.
func (f *File) Run(ctx context.Context, changed func()) {
	logger := klog.FromContext(ctx)
	w := fileFollower{path: f.options.Path, debounce: f.options.Debounce, used: f.read(), newWatcher: f.newWatcher}
	f.Status().log(logger)
	w.watch(logger)
	defer w.stop()
	poll := time.NewTicker(f.options.Poll)
	defer poll.Stop()
	w.expectChange() // it may have changed before it was watched
	for {
		var next *content
		select {
		case <-ctx.Done():
			return
		case <-w.events:
			w.expectChange()
		case err := <-w.errors:
			logger.V(2).Info("File events may be lost, reading the file again", "file", f.options.Path, "err", err)
			w.expectChange()
		case <-poll.C:
			w.watch(logger)
			w.expectChange()
		case <-w.due:
			next = w.read()
		case <-f.reload:
			next = w.believe(readContent(w.path))
		}
		if next != nil && f.apply(logger, *next) {
			changed()
		}
	}
}

// fileFollower reads a file that somebody may be writing. It reads the file when nothing has
// happened to it for the debounce, and believes a content that is the same after another
// debounce. It belongs to one goroutine.
type fileFollower struct {
	path     string
	debounce time.Duration
	used     string // id of the content that was believed last

	due   <-chan time.Time // of the next reading; nil if no change is expected
	began time.Time        // when a change was expected first
	seen  string           // id of the content that was read last since then

	newWatcher func() (*fsnotify.Watcher, error)
	watcher    *fsnotify.Watcher     // of the folder; nil if there is none: then the poll finds changes
	events     <-chan fsnotify.Event // of the watcher; nil without it
	errors     <-chan error          // of the watcher; nil without it
	problem    string                // of watching, that was logged last; "" if there is none
}

// expectChange has the file read when it has rested.
func (w *fileFollower) expectChange() {
	if w.due == nil {
		w.began = time.Now()
	}
	if w.due == nil || !w.unrestIsLong() {
		w.due = time.After(w.debounce)
	}
}

// unrestIsLong reports whether the file has changed for so long that it is believed as it is.
func (w *fileFollower) unrestIsLong() bool {
	return time.Since(w.began) >= longestUnrest*w.debounce
}

// read reads the file. It returns a content that is new and believed, nil if there is none.
func (w *fileFollower) read() *content {
	c := readContent(w.path)
	if c.id == w.used || c.id == w.seen || w.unrestIsLong() {
		return w.believe(c)
	}
	w.seen, w.due = c.id, time.After(w.debounce)
	return nil
}

// believe ends the readings. It returns the content if it is new.
func (w *fileFollower) believe(c content) *content {
	w.due, w.seen = nil, ""
	if c.id == w.used {
		return nil
	}
	w.used = c.id
	return &c
}

// watch watches the folder of the file if it is not watched: because it could not be
// until now, or because the folder was replaced. A problem is logged when it is new.
func (w *fileFollower) watch(logger klog.Logger) {
	folder := w.path
	if info, err := os.Stat(w.path); err != nil || !info.IsDir() {
		folder = filepath.Dir(w.path)
	}
	var err error
	if w.watcher == nil {
		w.watcher, err = w.newWatcher()
	}
	if err == nil {
		w.events, w.errors = w.watcher.Events, w.watcher.Errors
		err = w.watcher.Add(folder)
	}
	if err == nil {
		w.problem = ""
	} else if err.Error() != w.problem {
		w.problem = err.Error()
		logger.Info("Cannot watch the folder of the configuration, polling the file instead", "folder", folder, "err", err)
	}
}

// stop ends the watch and waits for its goroutine.
func (w *fileFollower) stop() {
	if w.watcher != nil {
		_ = w.watcher.Close() // nothing depends on the watch any more
	}
}
