package registry

import (
	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// folderWatch wakes when something in a folder may have changed. It is for speed
// only: what cannot be watched is polled.
type folderWatch struct {
	folder  string
	open    func() (*fsnotify.Watcher, error)
	watcher *fsnotify.Watcher // nil: there is none
	problem string            // that was logged last; "" if all is well
}

// renew watches the folder if it is not watched: because it could not be until
// now, or because it was replaced. A problem is logged when it is new.
func (w *folderWatch) renew(logger klog.Logger) {
	err := w.add()
	if err == nil {
		w.problem = ""
	} else if err.Error() != w.problem {
		w.problem = err.Error()
		logger.Info("Warning: a folder cannot be watched, changes in it are found more slowly, by reading it again and again",
			"folder", w.folder, "problem", err)
	}
}

func (w *folderWatch) add() error {
	if w.watcher == nil {
		watcher, err := w.open()
		if err != nil {
			return err
		}
		w.watcher = watcher
	}
	return w.watcher.Add(w.folder)
}

// events wakes for changes; it is nil, which blocks, if there is no watcher.
func (w *folderWatch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

// errors wakes when events may have been lost.
func (w *folderWatch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

// close ends the watch and waits for its goroutine.
func (w *folderWatch) close() error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Close()
}
