package torture

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// settings of one driver in drivers.yaml.
type settings struct {
	workers int
	timeout string // of chaos: fits into a lease
	mode    string
	others  string // in flow style
}

// String is the settings as YAML, in flow style; the zero value is empty.
func (s settings) String() string {
	var parts []string
	if s.workers > 0 {
		parts = append(parts, fmt.Sprintf("workers: %d", s.workers))
	}
	for name, value := range map[string]string{"timeout": s.timeout, "mode": s.mode} {
		if value != "" {
			parts = append(parts, name+": "+value)
		}
	}
	if s.others != "" {
		parts = append(parts, s.others)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
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

// write writes the file, by turns in place, as people do, and by a rename, as Kubernetes does.
// Called with mu held.
func (f *driversFile) write() error {
	content := testbed.Config(f.drivers, f.defaults, func(d *testbed.Driver) string { return f.settings[slices.Index(f.drivers, d)].String() })
	if f.instead != nil {
		content = *f.instead
	}
	path := f.path
	if f.inPlace = !f.inPlace; f.inPlace {
		f.broken++ // the file is empty for a moment
	} else {
		path += ".new"
	}
	err := os.WriteFile(path, []byte(content), 0o600)
	if err == nil && path != f.path {
		err = os.Rename(path, f.path)
	}
	if err != nil {
		return fmt.Errorf("write drivers.yaml: %w", err)
	}
	return nil
}

// set changes the settings of some drivers. What changes nothing is not written: a hub that starts may find the file empty.
func (f *driversFile) set(change func(*settings), drivers ...int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := slices.Clone(f.settings)
	for _, d := range drivers {
		change(&f.settings[d])
	}
	if slices.Equal(f.settings, was) {
		return nil
	}
	return f.write()
}

// replace writes another content; nil: the drivers again. broken says that no hub can start with it.
func (f *driversFile) replace(content *string, broken bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instead, f.whole = content, !broken
	if broken {
		f.broken++
	}
	return f.write()
}

// state returns how often the file was broken so far, and whether a hub can start with it now.
func (f *driversFile) state() (broken int, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken, f.whole
}
