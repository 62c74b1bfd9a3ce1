package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// folder holds the sockets, state and logs of a command while it runs.
type folder struct {
	dir string
	out io.Writer // progress
}

// newFolder makes a temporary folder. The caller must close it.
func newFolder(out io.Writer) (folder, error) {
	// Short: paths of sockets have narrow limits.
	dir, err := os.MkdirTemp("", "attach-hub-")
	if err != nil {
		return folder{}, fmt.Errorf("make folder: %w", err)
	}
	return folder{dir: dir, out: out}, nil
}

// hub returns the absolute path of a hub's binary. Where path is empty it builds the hub, which may
// take minutes, with or without the race detector. With an error the folder is closed.
func (f folder) hub(ctx context.Context, path string, o testbed.BuildOptions) (string, error) {
	var err error
	if path == "" {
		fmt.Fprintln(f.out, "Building csi-attach-hub.")
		path = filepath.Join(f.dir, "csi-attach-hub")
		o.Package, o.Output = "./cmd/csi-attach-hub", path
		err = testbed.Build(ctx, o)
	} else {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", errors.Join(err, f.close(false))
	}
	return path, nil
}

// close removes the folder, or says where it is if it is to be kept.
func (f folder) close(keep bool) error {
	if keep {
		fmt.Fprintln(f.out, "The logs are kept in", f.dir)
		return nil
	}
	if err := os.RemoveAll(f.dir); err != nil {
		return fmt.Errorf("remove folder: %w", err)
	}
	return nil
}
