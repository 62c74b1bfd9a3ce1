package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

// writeAdopted writes what adopt has for the plans below a folder, which it makes. It writes nothing if a file is in the
// way. It returns what it has done, a line for the user.
func writeAdopted(dir string, plans []adopt.Plan) (string, error) {
	files, err := adopt.Kustomize(plans, dir)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%s is written; the steps are in %s\n", dir, filepath.Join(dir, "README.md"))
	if own, err := os.ReadFile(filepath.Join(dir, adopt.OriginalKustomization)); err == nil && !adopt.IsWritten(own) {
		// It names the user's own base.
		maps.DeleteFunc(files, func(name string, _ []byte) bool { return filepath.Dir(name) == "original" })
		text = "original is yours and stays as it is; " + text
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if content, err := os.ReadFile(filepath.Join(dir, name)); err == nil && !adopt.IsWritten(content) {
			problems = append(problems, fmt.Errorf("%s: was not written by adopt, so it is not overwritten: move it, or write to another folder", filepath.Join(dir, name)))
		}
	}
	earlier, _ := filepath.Glob(filepath.Join(dir, "hub", "*.yaml")) // no error: it is a correct pattern
	for _, path := range earlier {
		if files["hub/"+filepath.Base(path)] == nil {
			problems = append(problems, fmt.Errorf("%s: the folder is for this driver: write to another folder, or delete this one to replace it", path))
		}
	}
	if len(problems) > 0 {
		return "", fmt.Errorf("%w\nnothing is written", errors.Join(problems...))
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(content, []byte("#!")) {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(path, content, mode); err != nil {
			return "", err
		}
	}
	return text, nil
}
