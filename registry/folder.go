package registry

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// dataLink is the link in a mounted ConfigMap that moves to a new folder when it changes.
const dataLink = "..data"

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
		link, _ := os.Readlink(filepath.Join(path, dataLink))
		from := path
		if link != "" {
			if from = link; !filepath.IsAbs(link) {
				from = filepath.Join(path, link)
			}
		}
		files, err := readFolder(path, from)
		if now, _ := os.Readlink(filepath.Join(path, dataLink)); now == link {
			return files, err
		}
	}
	return nil, errors.New("the folder changes all the time")
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
		f := fileContent{path: filepath.Join(path, entry.Name()), err: err}
		if err == nil {
			f.data, f.err = readFile(filepath.Join(from, entry.Name()))
		}
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
