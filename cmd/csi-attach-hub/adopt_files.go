package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

// outputFolders are the folders of the output. Files of an earlier run are removed there, and nowhere else.
var outputFolders = []string{".", "original", "observe", "active", "hub", "objects"}

// writeFiles writes files below a folder, which it makes, and removes those of an earlier run. It writes nothing if a
// file is there that adopt has not written. It returns what it has done, a line for the user.
func writeFiles(dir string, files adopt.Files) (string, error) {
	own, err := keepOwnOriginal(dir, files)
	if err != nil {
		return "", err
	}
	old, err := writtenBefore(dir)
	if err != nil {
		return "", err
	}
	if err := checkForeign(dir, files, old); err != nil {
		return "", err
	}
	if err := replaceFiles(dir, files); err != nil {
		return "", err
	}
	removed := 0
	for _, name := range old {
		if _, still := files[name]; still {
			continue
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return "", err
		}
		removed++
		_ = os.Remove(filepath.Join(dir, filepath.Dir(name))) // if it is empty
	}
	text := fmt.Sprintf("%s: %d files written", dir, len(files))
	if removed > 0 {
		text += fmt.Sprintf(", %d of an earlier run removed", removed)
	}
	if own {
		text += "; original is yours and stays as it is"
	}
	return text + fmt.Sprintf("; the steps are in %s\n", filepath.Join(dir, "README.md")), nil
}

// keepOwnOriginal leaves the folder original to the user if its kustomization is the user's: it names another base.
func keepOwnOriginal(dir string, files adopt.Files) (bool, error) {
	if files[adopt.OriginalKustomization] == nil {
		return false, nil
	}
	content, err := os.ReadFile(filepath.Join(dir, adopt.OriginalKustomization))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || adopt.IsWritten(content) {
		return false, err
	}
	maps.DeleteFunc(files, func(name string, _ []byte) bool { return filepath.Dir(name) == "original" })
	return true, nil
}

// writtenBefore returns the files of an earlier run.
func writtenBefore(dir string) ([]string, error) {
	var names []string
	for _, folder := range outputFolders {
		entries, err := os.ReadDir(filepath.Join(dir, folder))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() {
				continue
			}
			name := filepath.Join(folder, e.Name())
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			if adopt.IsWritten(content) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// checkForeign returns an error with every path that is taken by something adopt has not written, and with every driver
// of an earlier run that this run does not have: its files would be removed.
func checkForeign(dir string, files adopt.Files, old []string) error {
	var problems []error
	for _, name := range old {
		if _, still := files[name]; !still && filepath.Dir(name) == "hub" {
			problems = append(problems, fmt.Errorf("%s: the folder has the output for this driver, and this run is not for it: write to another folder, or delete this folder to replace it", filepath.Join(dir, name)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) || slices.Contains(old, name) {
			continue
		} else if err != nil {
			problems = append(problems, err)
			continue
		}
		problems = append(problems, fmt.Errorf("%s: was not written by adopt, so it is not overwritten: move it, or write to another folder", path))
	}
	if len(problems) > 0 {
		problems = append(problems, errors.New("nothing is written"))
	}
	return errors.Join(problems...)
}

// replaceFiles writes all files beside their places before it moves the first, so that a full disk leaves the old ones.
func replaceFiles(dir string, files adopt.Files) (err error) {
	const unfinished = ".adopt-unfinished"
	names := slices.Sorted(maps.Keys(files))
	defer func() {
		if err != nil {
			for _, name := range names {
				_ = os.Remove(filepath.Join(dir, name) + unfinished)
			}
		}
	}()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if filepath.Ext(name) == ".sh" {
			mode = 0o755
		}
		if err := os.WriteFile(path+unfinished, files[name], mode); err != nil {
			return err
		}
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.Rename(path+unfinished, path); err != nil {
			return err
		}
	}
	return nil
}
