package testbed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// repositoryRoot returns the folder of the repository, which is looked for upwards from the working folder.
func repositoryRoot() (string, error) {
	for dir, _ := os.Getwd(); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(nested(dir, "controlplane")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("find the repository: run inside a clone of it")
}

// nested returns the folder of a nested module of the repository.
func nested(root, module string) string {
	return filepath.Join(root, "internal", "test", "world", module)
}

// withoutCgo is how `make` compiles all but what has the race detector, so that each package is compiled once.
const withoutCgo = "CGO_ENABLED=0"

// runGo runs the go command in dir. Its output goes into the error.
func runGo(ctx context.Context, dir, cgo string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// A workspace would mix the versions of the two modules.
	cmd.Env = append(os.Environ(), "GOWORK=off", cgo)
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return fmt.Errorf("run go %s: %w", args[0], context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("run go %s in %s: %w\n%s", strings.Join(args, " "), dir, err, lastLines(string(output), 30))
	}
	return nil
}

// BuildOptions say which command of this repository to build, and how.
type BuildOptions struct {
	Package string // for example "./cmd/csi-attach-hub", relative to the repository
	Race    bool   // with the race detector
}

// sharedBinaries are the commands that this test process has built; each is
// built once, and whoever asks meanwhile waits.
var sharedBinaries struct {
	sync.Mutex
	dir    string
	builds map[BuildOptions]func() (string, error)
}

// SharedBinary returns the path of a command of the root module without debug information, built once
// per test process, for tests that run it. RunMain removes it at the end.
func SharedBinary(ctx context.Context, o BuildOptions) (string, error) {
	sharedBinaries.Lock()
	defer sharedBinaries.Unlock()
	if sharedBinaries.dir == "" {
		dir, err := os.MkdirTemp("", "attach-hub-bin-")
		if err != nil {
			return "", fmt.Errorf("make folder for binaries: %w", err)
		}
		sharedBinaries.dir, sharedBinaries.builds = dir, map[BuildOptions]func() (string, error){}
	}
	if sharedBinaries.builds[o] == nil {
		// The first caller's cancellation must not become everybody's error.
		ctx, dir := context.WithoutCancel(ctx), sharedBinaries.dir
		sharedBinaries.builds[o] = sync.OnceValues(func() (string, error) { return buildForTests(ctx, dir, o) })
	}
	build := sharedBinaries.builds[o]
	sharedBinaries.Unlock()
	defer sharedBinaries.Lock()
	return build()
}

func buildForTests(ctx context.Context, dir string, o BuildOptions) (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, path.Base(o.Package))
	// Go caches what "go run" has linked, but not what "go build" has: a link costs seconds in every test process.
	// Instead of the program it runs install, which copies the program to a path that no other process removes.
	args, cgo := []string{"run", "-exec", "install"}, withoutCgo
	if o.Race {
		file += ".race"
		args, cgo = append(args, "-race"), "CGO_ENABLED=1"
	}
	return file, runGo(ctx, root, cgo, append(args, o.Package, file)...)
}

// removeSharedBinaries removes what SharedBinary has built.
func removeSharedBinaries() error {
	sharedBinaries.Lock()
	defer sharedBinaries.Unlock()
	if sharedBinaries.dir == "" {
		return nil
	}
	return os.RemoveAll(sharedBinaries.dir)
}

// ControlPlaneBinary returns the path of the built internal/test/world/controlplane. It
// is built when no build of the same sources and Go version is cached, which
// takes some minutes the first time: log (may be nil) then says so. When
// another process is building it already, that build is waited for.
func ControlPlaneBinary(ctx context.Context, log io.Writer) (string, error) {
	return nestedBinary(ctx, "controlplane", ".", log)
}

// csiAttacher is the command of internal/test/world/csiattacher, which has no code of its own.
const csiAttacher = "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher"

// CSIAttacherBinary returns the path of the csi-attacher that internal/test/world/csiattacher pins, as
// ControlPlaneBinary does. Its source comes from the Go module proxy.
func CSIAttacherBinary(ctx context.Context, log io.Writer) (string, error) {
	return nestedBinary(ctx, "csiattacher", csiAttacher, log)
}

// nestedBinary returns the path of a command that a nested module pins.
func nestedBinary(ctx context.Context, module, command string, log io.Writer) (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	key, err := sourceKey(nested(root, module))
	if err != nil {
		return "", err
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return cached(filepath.Join(user, "csi-attach-hub", module), module+"-"+key, func(file string) error {
		if log != nil {
			fmt.Fprintf(log, "building %s: some minutes the first time, then cached in %s\n", module, filepath.Dir(file))
		}
		return runGo(ctx, nested(root, module), withoutCgo, "build", "-ldflags", linkFlags, "-o", file, command)
	})
}

// linkFlags leave symbols out: the link is quicker, and the file a third smaller. They tell kube-apiserver its version: Helm installs no
// chart where it is not known.
const linkFlags = "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2"

// sourceKey is a hash of all that goes into the binary. go.sum stands for the
// dependencies; tests do not count.
func sourceKey(dir string) (string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return "", fmt.Errorf("read sources: %w", err)
	}
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOOS, runtime.GOARCH, linkFlags)
	for _, e := range entries {
		name := e.Name()
		if name != "go.mod" && name != "go.sum" && filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("read sources: %w", err)
		}
		fmt.Fprintf(hash, "%s %d\n%s", name, len(data), data)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:8]), nil
}

// cacheLife is how long a build stays that is not used.
const cacheLife = 7 * 24 * time.Hour

// cached returns the path of a built file in a folder, and builds it if it is not there. Any number of processes may use the
// folder at once: one builds, and the others wait. Other files that were not used for long are removed.
func cached(dir, name string, build func(file string) error) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make cache folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("open lock of the cache: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock the cache: %w", err)
	}
	file, now := filepath.Join(dir, name), time.Now()
	if os.Chtimes(file, now, now) == nil { // it is there, and marked as used
		return file, nil
	}
	old, _ := filepath.Glob(filepath.Join(dir, "*-*")) // the pattern is valid
	for _, path := range old {
		if info, err := os.Stat(path); err == nil && now.Sub(info.ModTime()) > cacheLife {
			_ = os.Remove(path) // one that still runs goes on
		}
	}
	// Under its final name a file is always whole, whatever interrupts.
	partial := filepath.Join(dir, "partial")
	defer os.Remove(partial)
	if err := build(partial); err != nil {
		return "", err
	}
	return file, os.Rename(partial, file)
}
