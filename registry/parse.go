package registry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"

	"gopkg.in/yaml.v3"
)

const (
	apiVersion = "attach-hub/v1alpha1"
	configKind = "DriverConfig"

	// maxFileSize is far above what a ConfigMap can hold.
	maxFileSize = 4 << 20
)

// Config is what a drivers.yaml says, or the files of a folder together.
type Config struct {
	drivers   Snapshot
	defaults  Settings
	discovery Discovery
	warnings  []Warning

	// Of one file.
	file                        string
	data                        []byte
	entries                     []entry
	defaultsLine, discoveryLine int // 0: it has none
	defaultsMisspelt            bool

	// Of several files. incomplete: one could not be read since the start, or two contradict each other, so drivers are missing.
	incomplete   bool
	good         map[string]*Config // what holds of each file, by path
	rejected     map[string]bool    // files of which not even a part was taken as it was
	secrets      []string           // in the lists of all drivers, also of those that are not served
	defaultsFile string             // "" for none
}

// Drivers returns the drivers that the file names, with the settings that hold
// for each of them. It is not to be changed.
func (c *Config) Drivers() Snapshot { return c.drivers }

// Defaults returns the settings of drivers that are discovered.
func (c *Config) Defaults() Settings { return c.defaults }

// Discovery says where drivers are looked for besides. It is not to be changed.
func (c *Config) Discovery() Discovery { return c.discovery }

// Warnings returns the warnings of the file, in order of line. It is not to be changed.
func (c *Config) Warnings() []Warning { return c.warnings }

// parser collects the mistakes in one file. It goes on after a mistake; the Config that it
// reads is usable only if there was none.
type parser struct {
	file     string
	base     Settings              // hold where no file says anything
	values   map[string]*yaml.Node // of all keys that are known, by path: "drivers[1].retry.max"
	misread  map[string]bool       // paths of values that could not be read
	misspelt map[string]bool       // paths that an unknown key probably means
	errors   Errors
	warnings []Warning
}

func newParser(file string) *parser {
	return &parser{
		file: file, base: DefaultSettings(),
		values: map[string]*yaml.Node{}, misread: map[string]bool{}, misspelt: map[string]bool{},
	}
}

func (p *parser) report(line int, path, message string) {
	p.errors = append(p.errors, Error{File: p.file, Line: line, Path: path, Message: message})
}

func (p *parser) reportf(line int, path, format string, args ...any) {
	p.report(line, path, fmt.Sprintf(format, args...))
}

var fileTable = table[Config]{
	constant("apiVersion", apiVersion),
	constant("kind", configKind),
	{key: "defaults", schema: settingTable.schema("settings of all drivers whose entry has no other value"), read: readDefaults},
	{key: "discovery", group: table[Config]{
		{key: "csiDrivers", schema: discoveryTable.schema("drivers from CSIDriver objects, which drivers need not list"), read: readDiscovery},
	}},
	{key: "drivers", required: true, want: wantDrivers, schema: listOf(driverTable.schema("a driver")), read: readDrivers},
}

// constant returns the field of a key that must have one value.
func constant(key, only string) field[Config] {
	k := text[string](only, func(s string) error { return unless(s == only) }, schema{"const": only})
	return value(key, k, func(*Config) *string { return new(string) }).must()
}

// parse reads a whole file, with the settings that hold outside of it. It returns nil if it is no mapping. A parser can parse once.
func (p *parser) parse(data []byte, outer Settings) *Config {
	config := &Config{file: p.file, defaults: outer, drivers: Snapshot{}}
	roots := p.documents(data)
	switch {
	case len(roots) == 0 && p.errors == nil:
		p.reportf(0, "", "the configuration is empty: write apiVersion: %s, kind: %s and drivers: [] for no drivers", apiVersion, configKind)
	case len(roots) > 1:
		p.report(roots[1].Line, "", "a second YAML document begins here: put all drivers into one document")
	}
	if len(roots) == 0 {
		return nil
	}
	fileTable.read(p, roots[0], "", config)
	slices.SortStableFunc(p.errors, compareErrors)
	if roots[0].Kind != yaml.MappingNode {
		return nil
	}
	if n := p.values["discovery"]; n != nil {
		config.discoveryLine = n.Line
	}
	slices.SortStableFunc(p.warnings, func(a, b Warning) int { return compareErrors(Error(a), Error(b)) })
	config.warnings = p.warnings
	return config
}

// readDefaults reads the settings of all drivers of a file.
func readDefaults(p *parser, n *yaml.Node, path string, c *Config) {
	d := Driver{Settings: c.defaults}
	settingTable.read(p, n, path, &d)
	if n := p.values["defaults.lease.name"]; n != nil {
		p.report(n.Line, "defaults.lease.name", "applies to one driver only: move it to the entry of that driver")
		d.Lease.Name = ""
	}
	p.finish(&d.Settings, path)
	p.warn(d, path)
	c.defaults, c.defaultsLine = d.Settings, n.Line
}

// documents returns the roots of all YAML documents that are not empty. It reports a text that is too large or no YAML.
func (p *parser) documents(data []byte) []*yaml.Node {
	if len(data) > maxFileSize {
		p.reportf(0, "", "the file has more than %d bytes, which is the limit", maxFileSize)
		return nil
	}
	roots, err := decode(data)
	if err != nil {
		p.syntax(data, err)
		return nil
	}
	return roots
}

// decode returns the roots of all YAML documents that are not empty, or the first error in the text.
func decode(text []byte) (roots []*yaml.Node, err error) {
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			return nil, err
		}
		if root := document.Content[0]; !isNull(root) {
			roots = append(roots, root)
		}
	}
}

// yamlPosition is how package yaml begins its errors. The line is that of the surrounding
// value in most of them, not the one with the problem.
var yamlPosition = regexp.MustCompile(`^yaml: (?:line \d+: )?`)

// syntax reports an error of package yaml at the first line with which the text has this problem.
func (p *parser) syntax(data []byte, err error) {
	problem := yamlPosition.ReplaceAllString(err.Error(), "")
	lines := bytes.SplitAfter(data, []byte("\n"))
	line := 1 + sort.Search(len(lines)-1, func(i int) bool {
		_, err := decode(bytes.Join(lines[:i+1], nil))
		return err != nil && yamlPosition.ReplaceAllString(err.Error(), "") == problem
	})
	if bytes.HasPrefix(bytes.TrimLeft(lines[line-1], " "), []byte("\t")) {
		problem += " (indent with spaces, not with tabs)"
	}
	p.report(line, "", "invalid YAML: "+problem)
}
