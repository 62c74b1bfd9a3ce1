package chaos

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// settings of one driver in drivers.yaml.
type settings struct {
	workers int
	timeout string // fits into a lease
	mode    string
}

// usualSettings have fewer workers than a driver has pods, so that work waits at times.
var usualSettings = settings{workers: 4, timeout: "2s", mode: "active"}

// driversFile is the drivers.yaml of all hubs.
type driversFile struct {
	path     string
	storages []*storage

	mu       sync.Mutex // guards all below, and the file
	settings []settings // by driver
	instead  *string    // what is in the file instead of the drivers
	broken   int        // how often the file was one that no hub can start with
	whole    bool       // it is none at present
	inPlace  bool       // the next write is done in place
}

func newDriversFile(path string, storages []*storage) (*driversFile, error) {
	f := &driversFile{path: path, storages: storages, whole: true}
	for range storages {
		f.settings = append(f.settings, usualSettings)
	}
	return f, f.write()
}

const driversHead = "apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\n"

// content is called with mu held.
func (f *driversFile) content() string {
	if f.instead != nil {
		return *f.instead
	}
	var b strings.Builder
	b.WriteString(driversHead)
	b.WriteString("defaults: {retry: {initial: 100ms, max: 1s}, drift: {interval: 1s, timeout: 2s}, probe: {interval: 1s, timeout: 2s}}\ndrivers:\n")
	for i, s := range f.settings {
		fmt.Fprintf(&b, "  - {name: %s, endpoint: \"unix://%s\", workers: %d, timeout: %s, mode: %s}\n",
			f.storages[i].driver, f.storages[i].socket, s.workers, s.timeout, s.mode)
	}
	return b.String()
}

// write is called with mu held. People write in place, Kubernetes renames.
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
		f.broken++ // for a moment it was empty
		return nil
	}
	if err := os.Rename(path, f.path); err != nil {
		return fmt.Errorf("write drivers.yaml: %w", err)
	}
	return nil
}

// set changes the settings of one driver.
func (f *driversFile) set(driver int, change func(*settings)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.settings[driver])
	return f.write()
}

// replace puts something else into the file, which no hub can start with if it is broken.
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

// restore ends replace.
func (f *driversFile) restore() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instead, f.whole = nil, true
	return f.write()
}

// state returns how often the file was broken so far, and whether it is whole.
func (f *driversFile) state() (broken int, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken, f.whole
}
