//go:build unix

package main

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// giveTo gives a file to the user and the group of another one.
func giveTo(f *os.File, of fs.FileInfo) error {
	owner := of.Sys().(*syscall.Stat_t)
	if err := f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
		return fmt.Errorf("it belongs to user %d and group %d, and its new version cannot be given to them: run the command as that user or as root: %w", owner.Uid, owner.Gid, err)
	}
	return nil
}
