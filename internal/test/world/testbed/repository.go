package testbed

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// modulePath is what the first line of the repository's go.mod names.
const modulePath = "github.com/csi-attach-hub/csi-attach-hub"

// repositoryRoot returns the folder of the root module's go.mod. It is looked
// for upwards from the working folder, where `go test` and `go run` are, and
// then from where this file was compiled.
func repositoryRoot() (string, error) {
	var starts []string
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}
	for _, start := range starts {
		if root := moduleRootAbove(start); root != "" {
			return root, nil
		}
	}
	return "", errors.New("find the repository: no go.mod of " + modulePath + " here or above: run inside a clone of it")
}

// moduleRootAbove goes past nested modules, whose go.mod names another path.
func moduleRootAbove(dir string) string {
	for {
		if name, err := moduleName(filepath.Join(dir, "go.mod")); err == nil && name == modulePath {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

func moduleName(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", fmt.Errorf("read %s: no module line", path)
}
