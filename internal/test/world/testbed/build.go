package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
)

// BuildOptions say which command of this repository to build, and how.
type BuildOptions struct {
	Package string    // for example "./cmd/csi-attach-hub", relative to the repository
	Output  string    // file to write; replaced if it exists
	Race    bool      // with the race detector
	LDFlags string    // for example "-X main.version=v1"
	Log     io.Writer // gets the compiler's output; may be nil
}

// Build builds a command of the root module and blocks until it is written.
// The Go build cache makes a build without changes take about a second.
func Build(ctx context.Context, o BuildOptions) error {
	if o.Package == "" || o.Output == "" {
		return errors.New("build command: Package and Output must be set")
	}
	root, err := repositoryRoot()
	if err != nil {
		return err
	}
	return runGo(ctx, root, o.Log, append(o.flags("build", "-o", o.Output), o.Package)...)
}

// flags are the arguments of the go command up to the package.
func (o BuildOptions) flags(args ...string) []string {
	if o.Race {
		args = append(args, "-race")
	}
	if o.LDFlags != "" {
		args = append(args, "-ldflags", o.LDFlags)
	}
	return args
}

// runGo runs the go command in dir. Its output goes to log and, when it fails,
// also into the error.
func runGo(ctx context.Context, dir string, log io.Writer, args ...string) error {
	var output strings.Builder
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// A workspace would mix the versions of the two modules.
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if log != nil && output.Len() > 0 {
		fmt.Fprint(log, output.String())
	}
	if ctx.Err() != nil {
		return fmt.Errorf("run go %s: %w", args[0], context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("run go %s in %s: %w\n%s", strings.Join(args, " "), dir, err, lastLines(output.String(), 30))
	}
	return nil
}

// sharedBinaries are the commands that this test process has built; each is
// built once, and whoever asks meanwhile waits.
var sharedBinaries struct {
	sync.Mutex
	dir    string
	builds map[BuildOptions]func() (string, error)
}

// SharedBinary returns the path of a command of the root module without debug information, built once
// per test process, for tests that run it. RunMain removes it at the end. Output
// of o is ignored.
func SharedBinary(ctx context.Context, o BuildOptions) (string, error) {
	o.Output, o.Log = "", nil
	sharedBinaries.Lock()
	build := sharedBinaries.builds[o]
	if build == nil {
		if sharedBinaries.builds == nil {
			sharedBinaries.builds = map[BuildOptions]func() (string, error){}
		}
		// The first caller's cancellation must not become everybody's error.
		ctx := context.WithoutCancel(ctx)
		build = sync.OnceValues(func() (string, error) { return buildForTests(ctx, o) })
		sharedBinaries.builds[o] = build
	}
	sharedBinaries.Unlock()
	return build()
}

func buildForTests(ctx context.Context, o BuildOptions) (string, error) {
	dir, err := sharedBinaryDir()
	if err != nil {
		return "", err
	}
	name := path.Base(filepath.ToSlash(o.Package))
	if o.Race {
		name += ".race"
	}
	file, err := os.CreateTemp(dir, name+".*")
	if err != nil {
		return "", fmt.Errorf("make file for binary: %w", err)
	}
	file.Close()
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	// Go caches what "go run" has linked, but not what "go build" has: a link costs seconds in every test process.
	// Instead of the program it runs install, which copies the program to a path that no other process removes.
	if err := runGo(ctx, root, nil, append(o.flags("run", "-exec", "install"), o.Package, file.Name())...); err != nil {
		return "", err
	}
	return file.Name(), nil
}

func sharedBinaryDir() (string, error) {
	sharedBinaries.Lock()
	defer sharedBinaries.Unlock()
	if sharedBinaries.dir == "" {
		dir, err := os.MkdirTemp("", "attach-hub-bin-")
		if err != nil {
			return "", fmt.Errorf("make folder for binaries: %w", err)
		}
		sharedBinaries.dir = dir
	}
	return sharedBinaries.dir, nil
}

// removeSharedBinaries removes what SharedBinary has built.
func removeSharedBinaries() error {
	sharedBinaries.Lock()
	dir := sharedBinaries.dir
	sharedBinaries.dir, sharedBinaries.builds = "", nil
	sharedBinaries.Unlock()
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}
