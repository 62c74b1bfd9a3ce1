package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// load makes one configuration of files. A file that is wrong keeps what it said last. If it has defaults, all files do: they
// depend on it. last is the configuration before, nil at the start.
func load(files []fileContent, base Settings, last *Config) (*Config, Errors) {
	parsed, problems := make([]*Config, len(files)), make([]Errors, len(files))
	keep, next := last, &Config{defaults: base, good: map[string]*Config{}, rejected: map[string]bool{}}
	if last == nil {
		last = &Config{}
	}
	var with []int // the files with defaults, as far as that can be told
	for i, f := range files {
		parsed[i], problems[i] = f.parse(base, base)
		if c := parsed[i]; c != nil && c.defaultsLine > 0 || problems[i] != nil && (f.path == last.defaultsFile ||
			defaultsKey.Match(f.data) || c != nil && c.defaultsMisspelt || f.err != nil && keep == nil) {
			with = append(with, i)
		}
	}
	// The file with defaults may have been renamed with a mistake.
	if bad := slices.Concat(problems...); len(with) == 0 && last.defaultsFile != "" && bad != nil {
		return keep, sorted(bad)
	}
	twice := inTwo(parsed, "defaults", "are in %s:%d too: write them in one file only", func(c *Config) int { return c.defaultsLine })
	for _, at := range with {
		if problems[at] != nil || twice != nil {
			return keep, sorted(append(slices.Concat(problems...), twice...))
		}
		next.defaults, next.defaultsFile = parsed[at].defaults, files[at].path
	}
	var all Errors
	var entries []entry
	var bad []fileContent
	var discoveries []*Config
	for i, f := range files {
		config, errs := parsed[i], problems[i]
		if len(with) > 0 && i != with[0] {
			config, errs = f.parse(base, next.defaults)
		}
		all = append(all, errs...)
		if config != nil { // the Secrets of a driver are its own, also while it is not served
			for _, e := range config.entries {
				next.secrets = append(next.secrets, e.Secrets.All()...)
			}
		}
		if errs != nil {
			next.rejected[f.path] = true
			bad = append(bad, f)
			if config = last.good[f.path]; config == nil {
				next.incomplete = true
				continue
			}
			if config, errs = (fileContent{path: f.path, data: config.data}).parse(base, next.defaults); errs != nil { // by new defaults
				return keep, sorted(all)
			}
		}
		next.good[f.path] = config
		entries = append(entries, config.entries...)
		next.warnings = append(next.warnings, config.warnings...)
		if config.discoveryLine > 0 {
			discoveries, next.discovery = append(discoveries, config), config.discovery
		}
	}
	if len(discoveries) > 1 {
		next.discovery = last.discovery
	}
	all = append(all, inTwo(discoveries, "discovery", "is in %s:%d too: write it in one file only", func(c *Config) int { return c.discoveryLine })...)
	return next, sorted(append(all, next.combine(entries, last, bad)...))
}

// inTwo returns the errors of a key that several files have. line returns where a file has it, 0 for nowhere.
func inTwo(configs []*Config, key, format string, line func(*Config) int) (errs Errors) {
	configs = slices.DeleteFunc(slices.Clone(configs), func(c *Config) bool { return c == nil || line(c) == 0 })
	for i, c := range configs {
		if other := configs[(i+1)%len(configs)]; other != c {
			errs = append(errs, Error{File: c.file, Line: line(c), Path: key, Message: fmt.Sprintf(format, other.file, line(other))})
		}
	}
	return errs
}

// parse parses the file with the settings outside of it. The errors are not nil if it fails; the Config is nil if it is not known
// whether the file has defaults.
func (f fileContent) parse(base, outer Settings) (*Config, Errors) {
	if f.err != nil {
		return nil, Errors{{File: f.path, Line: f.line, Message: f.err.Error()}}
	}
	p := newParser(f.path)
	p.base = base
	config := p.parse(f.data, outer)
	if config != nil {
		config.data, config.defaultsMisspelt = f.data, p.misspelt["defaults"]
	}
	for i, e := range p.errors {
		p.errors[i].Line = max(e.Line, f.line)
	}
	return config, p.errors
}

// defaultsKey finds defaults in a file that is no YAML.
var defaultsKey = regexp.MustCompile(`(?m)^[{ "']*defaults["']?\s*:`)

// combine takes the entries of all files into the configuration, and keeps what only bad files name. Of entries of different files that cannot be served together,
// the one that is served now stays, and the other ones are reported. If none is, none will be: which one is right is not known.
func (c *Config) combine(entries []entry, last *Config, bad []fileContent) (problems Errors) {
	wanted := map[reservation][]entry{}
	for _, e := range entries {
		for _, reservation := range e.reservations() {
			wanted[reservation] = append(wanted[reservation], e)
		}
	}
	// rival returns another entry that wants what an entry wants or has had.
	rival := func(reservation reservation, e entry) (entry, bool) {
		i := slices.IndexFunc(wanted[reservation], func(other entry) bool { return other.Source != e.Source })
		if i < 0 {
			return entry{}, false
		}
		return wanted[reservation][i], true
	}
	c.drivers = Snapshot{}
	for _, e := range entries {
		held := last.drivers[e.Name]
		if !strings.HasPrefix(held.Source, e.parser.file+":") {
			held = Driver{} // the entry is not served now
		}
		serve, has, wants := e.Driver, held.reservations(), e.reservations()
		for _, reservation := range wants {
			if other, ok := rival(reservation, e); ok && !slices.Contains(has, reservation) {
				problems = append(problems, e.error(reservation, other.Driver, " ("+other.Source+")"))
				serve = held
				break
			}
		}
		for _, reservation := range has {
			if _, lost := rival(reservation, e); lost && serve == held && !slices.Contains(wants, reservation) {
				serve = Driver{} // another file has taken it over
			}
		}
		if serve.Name == "" {
			c.incomplete = true
			continue
		}
		c.drivers[e.Name] = serve
	}
	// A driver that a bad file names may have been moved into it, or the file may have been renamed.
	for name, d := range last.drivers {
		word := regexp.MustCompile(`(^|[^\w.-])` + regexp.QuoteMeta(name) + `($|[^\w.-])`)
		if slices.ContainsFunc(bad, func(f fileContent) bool { return f.data == nil || word.Match(f.data) }) &&
			!slices.ContainsFunc(d.reservations(), func(reservation reservation) bool { return len(wanted[reservation]) > 0 }) {
			c.drivers[name] = d
		}
	}
	return problems
}

func sorted(errs Errors) Errors {
	slices.SortStableFunc(errs, compareErrors)
	return errs
}

// states returns how each file was read, after errors. unchanged says that nothing is taken of the files as they are now.
func (c *Config) states(errs Errors, unchanged bool) (all []FileState) {
	bad := map[string]bool{}
	for path := range c.good {
		bad[path] = false
	}
	for _, e := range errs {
		bad[e.File] = true
	}
	for _, path := range slices.Sorted(maps.Keys(bad)) {
		state := FileState{Path: path}
		switch {
		case !bad[path]:
		case unchanged || len(bad) == 1:
			state.instead = "the previous configuration stays active"
		case c.good[path] == nil:
			state.instead = "none of its drivers is served; the other files apply"
		case c.rejected[path]:
			state.instead = "its drivers keep their last good configuration; the other files apply"
		default:
			state.instead = "what another file says too stays as it was; all else applies"
		}
		if bad[path] {
			state.Rejected = path + " rejected; " + state.instead
		}
		all = append(all, state)
	}
	return all
}

// hash returns the hash of all contents that hold, in hex.
func (c *Config) hash() string {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(c.good)) {
		fmt.Fprintf(h, "%s %d\n%s", path, len(c.good[path].data), c.good[path].data)
	}
	return hex.EncodeToString(h.Sum(nil))
}
