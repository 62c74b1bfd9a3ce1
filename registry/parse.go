package registry

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"gopkg.in/yaml.v3"
)

const (
	apiVersion = "attach-hub/v1alpha1"
	configKind = "DriverConfig"

	// maxFileSize is far above what a ConfigMap can hold.
	maxFileSize = 4 << 20
)

// Config is what a drivers.yaml says.
type Config struct {
	drivers   Snapshot
	defaults  Settings
	discovery Discovery
	warnings  []Warning

	// incomplete: a file could not be read since the start, or two files contradict each other, so drivers are missing.
	incomplete bool
	files      map[string]string // of each driver, if there are several

	// What load needs of one file.
	file          string
	own           *scope // of its defaults; nil without
	entries       []entry
	defaultsLine  int
	discoveryLine int // 0: it has none
}

// Drivers returns the drivers that the file names, with the settings that hold
// for each of them. It is not to be changed.
func (c *Config) Drivers() Snapshot {
	return c.drivers
}

// Defaults returns the settings of drivers that are discovered.
func (c *Config) Defaults() Settings { return c.defaults }

// Discovery says where drivers are looked for besides. It is not to be changed.
func (c *Config) Discovery() Discovery { return c.discovery }

// readFile returns the content of a file, at most one byte more than Parse accepts.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("file does not exist: correct the path or create the file")
	}
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	return readAll(f)
}

func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFileSize+1))
	if err != nil {
		return nil, cause(err)
	}
	return data, nil
}

// cause drops the path, which the message begins with anyway.
func cause(err error) error {
	if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
		return fmt.Errorf("cannot be read: %w", pathError.Err)
	}
	return fmt.Errorf("cannot be read: %w", err)
}

// Parse reads the content of a drivers.yaml. It fails with Errors, which hold
// every mistake in it; they name it file.
func Parse(file string, data []byte) (*Config, error) {
	return newParser(file).parse(data)
}

// parse is Parse for the file of the parser. A parser can parse once.
func (p *parser) parse(data []byte) (*Config, error) {
	config := p.config(data)
	if len(p.errors) > 0 {
		slices.SortStableFunc(p.errors, func(a, b Error) int { return cmp.Compare(a.Line, b.Line) })
		return nil, p.errors
	}
	slices.SortStableFunc(p.warnings, func(a, b Warning) int { return cmp.Compare(a.Line, b.Line) })
	config.warnings = p.warnings
	return config, nil
}

// parser collects the mistakes in one file. It goes on after a mistake; the Config that it
// reads is usable only if there was none.
type parser struct {
	file     string
	base     Settings // hold where the file says nothing
	outer    *scope   // the defaults of another file, which hold on top of base; may be nil
	errors   Errors
	warnings []Warning
}

func newParser(file string) *parser { return &parser{file: file, base: DefaultSettings()} }

func (p *parser) report(line int, path, message string) {
	p.errors = append(p.errors, Error{File: p.file, Line: line, Path: path, Message: message})
}

func (p *parser) reportf(line int, path, format string, args ...any) {
	p.report(line, path, fmt.Sprintf(format, args...))
}

var fileMapping = mapping{
	{key: "apiVersion", required: true, schema: schema{"const": apiVersion}},
	{key: "kind", required: true, schema: schema{"const": configKind}},
	{key: "defaults", schema: defaultsMapping.schema("settings of all drivers whose entry has no other value")},
	{key: "discovery", schema: discoveryMapping.schema("where to look for drivers that are not listed")},
	{key: "drivers", required: true, schema: listOf(driverMapping.schema("a driver"))},
}

// config reads a whole file.
func (p *parser) config(data []byte) *Config {
	root := p.document(data)
	if root == nil {
		return nil
	}
	top := p.object(root, "", fileMapping)
	if root.Kind != yaml.MappingNode {
		return nil
	}
	p.text(top, "apiVersion", apiVersion, mustBe(apiVersion))
	p.text(top, "kind", configKind, mustBe(configKind))
	config := &Config{file: p.file}
	defaults := scope{Settings: p.base}
	if p.outer != nil {
		defaults = *p.outer
	}
	if n, written := top.values["defaults"]; written {
		o := p.object(n, "defaults", defaultsMapping)
		defaults = p.settings(o, defaults)
		p.warnDefaults(o, defaults.Settings)
		config.own, config.defaultsLine = &defaults, n.Line
	}
	config.defaults = defaults.Settings
	if n, written := top.values["discovery"]; written {
		config.discovery, config.discoveryLine = p.discovery(n), n.Line
	}
	if n, ok := p.required(top, "drivers", wantDrivers); ok {
		config.drivers, config.entries = p.entries(n, "drivers", defaults)
	}
	return config
}

// document returns the root of the only YAML document, nil if there is none.
func (p *parser) document(data []byte) *yaml.Node {
	if len(data) > maxFileSize {
		p.tooLarge()
		return nil
	}
	var document, second yaml.Node
	text := &lineReader{lines: bytes.SplitAfter(data, []byte("\n"))}
	decoder := yaml.NewDecoder(text)
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) || err == nil && isNull(document.Content[0]) {
		p.reportf(0, "", "the configuration is empty: write apiVersion: %s, kind: %s and drivers: [] for no drivers", apiVersion, configKind)
		return nil
	}
	if err == nil {
		err = decoder.Decode(&second)
		if err == nil {
			p.report(second.Line, "", "a second YAML document begins here: put all drivers into one document")
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		p.syntax(text, err)
		return nil
	}
	return document.Content[0]
}

func (p *parser) tooLarge() {
	p.reportf(0, "", "the file has more than %d bytes, which is the limit", maxFileSize)
}

// required returns the value of a key that must be there; want is what to write.
// If it returns false, what is wrong has been reported.
func (p *parser) required(o object, key, want string) (*yaml.Node, bool) {
	n, written := o.values[key]
	if !written && !o.misspelt[key] {
		p.report(o.line, o.child(key), "missing: write "+want)
	}
	return n, written
}

// text reads a string that must be there and pass a check. It returns "" if what is
// wrong has been reported.
func (p *parser) text(o object, key, want string, check func(string) error) string {
	n, ok := p.required(o, key, want)
	if !ok {
		return ""
	}
	return p.checked(n, o.child(key), want, check)
}

// checked reads a string that must pass a check, like text.
func (p *parser) checked(n *yaml.Node, path, want string, check func(string) error) string {
	err := mistyped(n, want)
	if isString(n) {
		err = check(n.Value)
	}
	if err != nil {
		p.report(n.Line, path, err.Error())
		return ""
	}
	return n.Value
}

// mustBe checks that a string is the only one that is allowed.
func mustBe(want string) func(string) error {
	return func(s string) error {
		if s != want {
			return fmt.Errorf("must be %s, not %s", want, quote(s))
		}
		return nil
	}
}
