package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"gopkg.in/yaml.v3"
)

// fileContent is one file of the configuration at one moment.
type fileContent struct {
	path string
	line int // of a manifest that the file begins below; 0 for a file of its own
	data []byte
	err  error // it could not be read
}

// loaded is the configuration that files make together.
type loaded struct {
	config   *Config           // nil: there is none
	good     map[string][]byte // the content of each file that holds, by path
	defaults string            // path of the file with defaults; "" for none
	errors   Errors            // of the files as they are now

	rejected  map[string]bool // files of which not even a part is taken as it is now
	unchanged bool            // nothing is taken of the files as they are now
}

// keep returns the configuration with the mistakes because of which nothing of the files is taken.
func (l loaded) keep(mistakes Errors) loaded {
	slices.SortStableFunc(mistakes, compareErrors)
	l.errors, l.unchanged = mistakes, true
	return l
}

// load makes one configuration of files. A file that is wrong keeps what it said last. If it has defaults, all files do: they
// depend on it. last is the configuration before, zero at the start.
func load(files []fileContent, base Settings, last loaded) loaded {
	next := loaded{good: map[string][]byte{}, rejected: map[string]bool{}}
	own, outer := next.readDefaults(files, base, last)
	if next.errors != nil {
		return last.keep(next.errors)
	}
	next.config = &Config{defaults: outer.Settings, files: map[string]string{}}
	var entries []entry
	var discoveries []*Config
	for i, f := range files {
		parsed, err := own[i], Errors(nil)
		if parsed == nil {
			parsed, err = f.parse(base, outer)
		}
		next.errors = append(next.errors, err...)
		data := f.data
		if err != nil {
			next.rejected[f.path] = true
			var ok bool
			if data, ok = last.good[f.path]; !ok {
				next.config.incomplete = true
				continue
			}
			if parsed, err = (fileContent{path: f.path, data: data}).parse(base, outer); err != nil { // by new defaults
				return last.keep(next.errors)
			}
		}
		next.good[f.path] = data
		entries = append(entries, parsed.entries...)
		next.config.warnings = append(next.config.warnings, parsed.warnings...)
		if parsed.discoveryLine > 0 {
			discoveries = append(discoveries, parsed)
		}
	}
	switch {
	case len(discoveries) == 1:
		next.config.discovery = discoveries[0].discovery
	case len(discoveries) > 1:
		for i, d := range discoveries {
			other := discoveries[(i+1)%len(discoveries)]
			next.errors = append(next.errors, Error{File: d.file, Line: d.discoveryLine, Path: "discovery",
				Message: fmt.Sprintf("is in %s:%d too: write it in one file only", other.file, other.discoveryLine)})
		}
		if last.config != nil {
			next.config.discovery = last.config.discovery
		}
	}
	next.combine(entries, last.config)
	slices.SortStableFunc(next.errors, compareErrors)
	return next
}

// parse parses the file with the settings outside of it. The errors are not empty if it fails.
func (f fileContent) parse(base Settings, outer scope) (*Config, Errors) {
	if f.err != nil {
		return nil, Errors{{File: f.path, Line: f.line, Message: f.err.Error()}}
	}
	p := parser{file: f.path, base: base, outer: &outer}
	config, err := p.parse(f.data)
	if err != nil {
		for i, e := range p.errors {
			p.errors[i].Line = max(e.Line, f.line)
		}
		return nil, p.errors
	}
	return config, nil
}

// readDefaults returns the settings that hold outside of the entries, and the file with defaults, by its index. It reports if they
// are not known, with the mistakes of all files.
func (l *loaded) readDefaults(files []fileContent, base Settings, last loaded) (own map[int]*Config, outer scope) {
	outer = scope{Settings: base}
	var with, unsure []int
	for i, f := range files {
		has, sure := f.hasDefaults()
		switch {
		case f.path == last.defaults && !sure || has && sure:
			with = append(with, i)
		case has:
			unsure = append(unsure, i)
		}
	}
	if len(with) == 0 {
		with = unsure
	}
	if len(with) == 0 {
		return nil, outer
	}
	own = map[int]*Config{}
	for _, i := range with {
		config, err := files[i].parse(base, outer)
		l.errors = append(l.errors, err...)
		if err == nil {
			own[i] = config
		}
	}
	if l.errors == nil && len(with) > 1 {
		for i, at := range with {
			other := own[with[(i+1)%len(with)]]
			l.errors = append(l.errors, Error{File: files[at].path, Line: own[at].defaultsLine, Path: "defaults",
				Message: fmt.Sprintf("are in %s:%d too: write them in one file only", other.file, other.defaultsLine)})
		}
	}
	if l.errors == nil {
		l.defaults = files[with[0]].path
		outer = *own[with[0]].own
		outer.origins = maps.Clone(outer.origins)
		for key, from := range outer.origins {
			from.file = l.defaults
			outer.origins[key] = from
		}
		return own, outer
	}
	for i, f := range files {
		if !slices.Contains(with, i) {
			_, err := f.parse(base, outer)
			l.errors = append(l.errors, err...)
		}
	}
	return nil, outer
}

// defaultsKey finds defaults in a file that is no YAML.
var defaultsKey = regexp.MustCompile(`\bdefaults\b`)

// hasDefaults reports whether a file has defaults, as far as that can be told.
func (f fileContent) hasDefaults() (has, sure bool) {
	if f.err != nil {
		return false, false
	}
	var document yaml.Node
	if yaml.Unmarshal(f.data, &document) != nil || len(document.Content) == 0 {
		return defaultsKey.Match(f.data), false
	}
	return valueAt(document.Content[0], "defaults") != nil, true
}

// holder is an entry by its driver and its file.
type holder struct{ driver, file string }

// combine takes the entries of all files into the configuration. Of entries of different files that cannot be served together,
// the one that is served now stays, and the other ones are reported. If none is, none will be: which one is right is not known.
func (l *loaded) combine(entries []entry, last *Config) {
	inUse := map[claim]holder{}
	if last != nil {
		for name, d := range last.drivers {
			for _, c := range d.claims() {
				inUse[c] = holder{name, last.files[name]}
			}
		}
	}
	wanted := map[claim][]entry{}
	for _, e := range entries {
		for _, c := range e.claims() {
			wanted[c] = append(wanted[c], e)
		}
	}
	l.config.drivers = Snapshot{}
	for _, e := range entries {
		serve, own := true, holder{e.Name, e.file}
		for _, c := range e.claims() {
			i := slices.IndexFunc(wanted[c], func(other entry) bool { return other.Source != e.Source })
			if i < 0 || inUse[c] == own {
				continue
			}
			serve = false
			l.errors = append(l.errors, e.clash(c, wanted[c][i].Driver, " ("+wanted[c][i].Source+")"))
			break
		}
		d := e.Driver
		if !serve {
			if last == nil || last.files[e.Name] != e.file || !isFree(last.drivers[e.Name], wanted, e.file) {
				continue
			}
			d = last.drivers[e.Name]
		}
		l.config.drivers[e.Name], l.config.files[e.Name] = d, e.file
	}
	for _, e := range entries {
		if _, served := l.config.drivers[e.Name]; !served {
			l.config.incomplete = true
		}
	}
}

// isFree reports whether no other file wants what a driver of a file has had.
func isFree(d Driver, wanted map[claim][]entry, file string) bool {
	for _, c := range d.claims() {
		if c.kind == claimName || c.kind == claimFinalizer {
			continue // it is in use
		}
		if slices.ContainsFunc(wanted[c], func(e entry) bool { return e.file != file }) {
			return false
		}
	}
	return true
}

// states returns how each file was read.
func (l loaded) states() []FileState {
	mistakes := map[string]int{}
	for path := range l.good {
		mistakes[path] = 0
	}
	for _, e := range l.errors {
		mistakes[e.File]++
	}
	var all []FileState
	for _, path := range slices.Sorted(maps.Keys(mistakes)) {
		all = append(all, FileState{Path: path, Mistakes: mistakes[path]})
		if s := &all[len(all)-1]; s.Mistakes > 0 {
			_, kept := l.good[path]
			switch {
			case l.unchanged || len(mistakes) == 1:
				s.Instead = "the previous configuration stays active"
			case !kept:
				s.Instead = "none of its drivers is served; the other files apply"
			case l.rejected[path]:
				s.Instead = "its drivers keep their last good configuration; the other files apply"
			default:
				s.Instead = "what another file says too stays as it was; all else applies"
			}
		}
	}
	return all
}

// hash returns the hash of all contents that hold, in hex.
func (l loaded) hash() string {
	h := sha256.New()
	for i, path := range slices.Sorted(maps.Keys(l.good)) {
		if len(l.good) > 1 {
			fmt.Fprintf(h, "%d %s %d\n", i, path, len(l.good[path]))
		}
		h.Write(l.good[path])
	}
	return hex.EncodeToString(h.Sum(nil))
}
