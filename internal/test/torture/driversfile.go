package torture

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// settings of one driver in drivers.yaml.
type settings struct {
	workers int
	timeout string // fits into a lease
	mode    string
}

// String is the settings as YAML, in flow style; the zero value is empty.
func (s settings) String() string {
	if s == (settings{}) {
		return ""
	}
	return fmt.Sprintf("workers: %d, timeout: %s, mode: %s", s.workers, s.timeout, s.mode)
}

// driversFile is the drivers.yaml of all hubs.
type driversFile struct {
	path     string
	drivers  []*testbed.Driver
	defaults string

	mu       sync.Mutex // guards all below, and the file
	settings []settings // by driver
	instead  *string    // content of the file; nil: the drivers
	broken   int        // how often no hub could have started with the file
	whole    bool       // a hub can start with the file now
	inPlace  bool       // the next write is done in place
}

func newDriversFile(path string, drivers []*testbed.Driver, l load) (*driversFile, error) {
	f := &driversFile{path: path, drivers: drivers, defaults: l.defaults, settings: slices.Repeat([]settings{l.settings}, len(drivers)), whole: true}
	return f, f.write()
}

// content returns what belongs into the file. Called with mu held.
func (f *driversFile) content() string {
	if f.instead != nil {
		return *f.instead
	}
	return testbed.Config(f.drivers, f.defaults, func(d *testbed.Driver) string {
		return f.settings[slices.Index(f.drivers, d)].String()
	})
}

// write writes the file, by turns in place, as people do, and by a rename, as Kubernetes does.
// Called with mu held.
func (f *driversFile) write() error {
	f.inPlace = !f.inPlace
	path := f.path
	if !f.inPlace {
		path += ".new"
	}
	if err := os.WriteFile(path, []byte(f.content()), 0o600); err != nil {
		return fmt.Errorf("write drivers.yaml: %w", err)
	}
	if f.inPlace {
		f.broken++ // the file was empty for a moment
		return nil
	}
	if err := os.Rename(path, f.path); err != nil {
		return fmt.Errorf("write drivers.yaml: %w", err)
	}
	return nil
}

// set changes the settings of one driver. What changes nothing is not written: a hub that starts may find the file empty.
func (f *driversFile) set(driver int, change func(*settings)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.settings[driver]
	if change(&f.settings[driver]); f.settings[driver] == was {
		return nil
	}
	return f.write()
}

// replace writes another content. broken says that no hub can start with it.
func (f *driversFile) replace(content string, broken bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instead = &content
	if broken {
		f.broken++
		f.whole = false
	}
	return f.write()
}

// restore undoes replace.
func (f *driversFile) restore() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instead, f.whole = nil, true
	return f.write()
}

// state returns how often the file was broken so far, and whether a hub can start with it now.
func (f *driversFile) state() (broken int, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken, f.whole
}
