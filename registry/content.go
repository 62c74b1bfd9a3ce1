package registry

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// content is what the file, or the folder, was at one moment.
type content struct {
	path  string
	id    string // differs for what is to be treated differently
	files []fileContent
	err   error // it could not be read
}

// fileContent is one file of the configuration at one moment.
type fileContent struct {
	path string
	line int // of a manifest that the file begins below; 0 for a file of its own
	data []byte
	err  error // it could not be read
}

func readContent(path string) content {
	c := content{path: path}
	c.files, c.err = readFiles(path)
	h := sha256.New()
	fmt.Fprintln(h, c.err)
	for _, f := range c.files {
		fmt.Fprintln(h, f.path, f.err, len(f.data), string(f.data))
	}
	c.id = string(h.Sum(nil))
	return c
}

// load returns the configuration that the content makes after another one.
func (c content) load(base Settings, last *Config) (*Config, Errors) {
	if c.err != nil {
		return last, Errors{{File: c.path, Message: c.err.Error()}}
	}
	return load(c.files, base, last)
}

// mostMoves is how often a folder is read again because it moved meanwhile.
const mostMoves = 5

// readFiles reads a file, or each *.yaml in a folder. It fails if the folder cannot be read or has none: that never means that
// there are no drivers.
func readFiles(path string) ([]fileContent, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		data, err := readFile(path)
		if err != nil {
			return nil, err
		}
		return []fileContent{{path: path, data: data}}, nil
	}
	for range mostMoves {
		from := dataFolder(path)
		files, err := readFolder(path, from)
		if dataFolder(path) == from {
			return files, err
		}
	}
	return nil, errors.New("the folder changes all the time")
}

// dataFolder returns where the files of a folder are: in a mounted ConfigMap behind a link that moves when it changes.
func dataFolder(path string) string {
	if data, err := filepath.EvalSymlinks(filepath.Join(path, "..data")); err == nil {
		return data
	}
	return path
}

// readFolder reads the files of a folder from where its contents are.
func readFolder(path, from string) ([]fileContent, error) {
	all, err := os.ReadDir(from)
	if err != nil {
		return nil, cause(err)
	}
	var files []fileContent
	for _, entry := range all {
		isRead, err := isConfigFile(entry.Name())
		if !isRead {
			continue
		}
		f := fileContent{path: filepath.Join(path, entry.Name())}
		f.data, f.err = readFile(filepath.Join(from, entry.Name()))
		f.err = cmp.Or(err, f.err)
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, errors.New("the folder has no *.yaml: write one with drivers: [] for no drivers")
	}
	return files, nil
}

// isConfigFile reports whether a file of a folder is a part of the configuration, by its name. It fails if the file should be one.
func isConfigFile(name string) (bool, error) {
	if stem, ok := strings.CutSuffix(name, ".yml"); ok && !strings.HasPrefix(name, ".") {
		return true, errors.New("is not read, because its name ends with .yml: rename it to " + stem + ".yaml, or remove it")
	}
	return strings.HasSuffix(name, ".yaml") && !strings.HasPrefix(name, "."), nil
}

// readFile returns the content of a file.
func readFile(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("file does not exist: correct the path or create the file")
	}
	if err != nil {
		return nil, cause(err)
	}
	return data, nil
}

// cause drops the path, which the message begins with anyway.
func cause(err error) error {
	return fmt.Errorf("cannot be read: %w", cmp.Or(errors.Unwrap(err), err))
}
