//go:build unix

package tlsproxy

import (
	"io/fs"
	"syscall"
)

// owner returns the user and the group of a file.
func owner(info fs.FileInfo) (uid, gid uint32) {
	s := info.Sys().(*syscall.Stat_t)
	return s.Uid, s.Gid
}
