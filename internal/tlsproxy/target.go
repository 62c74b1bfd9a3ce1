package tlsproxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

// target is the driver's socket. Its methods are safe for concurrent use.
type target struct {
	path string
	log  *loglimit.Limiter

	mu      sync.Mutex
	problem string // of the last connection, "" if it succeeded; guarded by mu
}

// open connects to the socket. Its error names the path and has no text of the driver. A new
// reason why it fails is logged with what to do, and also when it succeeds again.
func (t *target) open(ctx context.Context) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: targetTimeout}).DialContext(ctx, "unix", t.path)
	if err == nil {
		t.note(ctx, nil)
		return conn, nil
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno // the rest of the text repeats the path
	}
	if ctx.Err() == nil {
		t.note(ctx, err)
	}
	return nil, fmt.Errorf("proxy cannot open unix://%s: %w", t.path, err)
}

func (t *target) note(ctx context.Context, err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if problem == t.problem {
		return
	}
	t.problem = problem
	logger := klog.FromContext(ctx)
	if err == nil {
		t.log.Info(logger, "The driver's socket can be opened now", "target", t.path)
		return
	}
	found, uid := nearest(t.path), os.Geteuid()
	t.log.Info(logger, "Cannot open the driver's socket", "target", t.path, "problem", problem, "uid", uid, "gid", os.Getegid(),
		"found", found.String(), "action", found.action(err, uid))
}

// file is the owner and the mode of a file.
type file struct {
	path     string
	mode     fs.FileMode
	uid, gid uint32
}

// nearest returns the file at a path, or the nearest folder above it that can be seen.
func nearest(path string) file {
	for {
		info, err := os.Stat(path)
		above := filepath.Dir(path)
		if err == nil || above == path {
			f := file{path: path}
			if err == nil {
				f.mode = info.Mode()
				f.uid, f.gid = owner(info)
			}
			return f
		}
		path = above
	}
}

func (f file) String() string {
	return fmt.Sprintf("%s has the mode %s, user %d and group %d", f.path, f.mode, f.uid, f.gid)
}

// action says what to do about an error of connecting, for a process of a user.
func (f file) action(err error, uid int) string {
	switch {
	case errors.Is(err, fs.ErrPermission) && int(f.uid) != uid:
		return fmt.Sprintf("Run the proxy as user %d, who owns %s: set runAsUser in the securityContext of its container.", f.uid, f.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("Check the mode and the SELinux label of %s: the proxy runs as its owner.", f.path)
	case errors.Is(err, fs.ErrNotExist):
		return "Check that the driver runs, that --target is the path of its --endpoint, and that the volume of the socket is mounted into the proxy."
	}
	return "Check that the driver runs, and that --target is the path of its --endpoint: nothing listens there."
}
