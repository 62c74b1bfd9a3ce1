package testbed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// CacheEnv names the environment variable that moves the cache of built
// commands away from the user's cache folder.
const CacheEnv = "CSI_ATTACH_HUB_CACHE"

// cacheKeep is how many builds are kept: enough to go to another branch and
// back without a build of minutes.
const cacheKeep = 3

func cacheDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w: set %s", err, CacheEnv)
	}
	return filepath.Join(dir, "csi-attach-hub"), nil
}

// goToolchain names what compiles in dir: the module there may want another
// version of Go than the one that runs this.
func goToolchain(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask go for its version: %w", err)
	}
	return strings.Join(strings.Fields(string(out)), " "), nil
}

// sourceKey is a hash of all that goes into the binary. go.sum stands for the
// dependencies; tests do not count.
func sourceKey(dir, toolchain string) (string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return "", fmt.Errorf("read sources in %s: %w", dir, err)
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\n", toolchain)
	for _, e := range entries {
		name := e.Name()
		isSource := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
		if name != "go.mod" && name != "go.sum" && !isSource {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("read sources in %s: %w", dir, err)
		}
		fmt.Fprintf(hash, "%s %d\n", name, len(data))
		hash.Write(data)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// binaryCache keeps built binaries in a folder, one file per key. Any number
// of processes may use the folder at once.
type binaryCache struct {
	dir     string
	command nestedCommand
	log     io.Writer
	build   func(ctx context.Context, output string) error
}

// get returns the path of the key's binary, building it if need be.
func (c binaryCache) get(ctx context.Context, key string) (string, error) {
	file := filepath.Join(c.dir, c.command.module+"-"+key)
	if c.touch(file) {
		return file, nil
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return "", fmt.Errorf("make cache folder: %w: set %s to one that can be written", err, CacheEnv)
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if c.touch(file) { // whoever had the lock has built it
		return file, nil
	}
	fmt.Fprintf(c.log, "building %s (%s): some minutes the first time, then cached in %s\n", c.command.what, c.command.parts, c.dir)
	started := time.Now()
	// Under its final name a file is always whole, whatever interrupts.
	partial := file + ".partial"
	defer os.Remove(partial)
	if err := c.build(ctx, partial); err != nil {
		return "", fmt.Errorf("build %s: %w", c.command.what, err)
	}
	if err := os.Rename(partial, file); err != nil {
		return "", fmt.Errorf("build %s: %w", c.command.what, err)
	}
	fmt.Fprintf(c.log, "built %s in %v\n", c.command.what, time.Since(started).Round(time.Second))
	return file, c.prune()
}

// touch reports whether the file is there, and marks it as used.
func (c binaryCache) touch(file string) bool {
	now := time.Now()
	return os.Chtimes(file, now, now) == nil
}

// lockInterval is how often the lock of another process is tried again. The
// kernel could wake us instead, but then the wait could not be cancelled.
const lockInterval = 200 * time.Millisecond

func (c binaryCache) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock of the cache: %w", err)
	}
	ticker := time.NewTicker(lockInterval)
	defer ticker.Stop()
	for told := false; ; told = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock the cache: %w", err)
		}
		if !told {
			fmt.Fprintln(c.log, "waiting for another process that builds", c.command.what)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for another process that builds %s: %w", c.command.what, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// prune removes all but the builds that were used last. A binary that still
// runs goes on: only its name is removed.
func (c binaryCache) prune() error {
	names, err := filepath.Glob(filepath.Join(c.dir, c.command.module+"-*"))
	if err != nil {
		return err
	}
	used := map[string]time.Time{}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			continue
		}
		used[name] = info.ModTime()
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(used[b].Compare(used[a]), cmp.Compare(a, b)) })
	for _, name := range names[min(cacheKeep, len(names)):] {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove old build: %w", err)
		}
	}
	return nil
}
