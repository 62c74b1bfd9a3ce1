package testbed

import (
	"context"
	"io"
	"path/filepath"
)

// nestedCommand is a command that a nested module of this repository pins.
type nestedCommand struct {
	module  string // its folder in internal/test/world, and the name of the binary
	command string // package, as the module names it
	what    string // for messages
	parts   string // what is built, for messages
}

// binary returns the path of the built command. log may be nil.
func (n nestedCommand) binary(ctx context.Context, log io.Writer) (string, error) {
	if log == nil {
		log = io.Discard
	}
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, "internal", "test", "world", n.module)
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	toolchain, err := goToolchain(ctx, source)
	if err != nil {
		return "", err
	}
	key, err := sourceKey(source, toolchain)
	if err != nil {
		return "", err
	}
	cache := binaryCache{dir: filepath.Join(dir, n.module), command: n, log: log, build: func(ctx context.Context, output string) error {
		// Without symbols the link is quicker and the file a third smaller.
		return runGo(ctx, source, log, "build", "-ldflags", "-s -w", "-o", output, n.command)
	}}
	return cache.get(ctx, key)
}

// ControlPlaneBinary returns the path of the built internal/test/world/controlplane. It
// is built when no build of the same sources and Go version is cached, which
// takes some minutes the first time: log (may be nil) then says so. When
// another process is building it already, that build is waited for.
func ControlPlaneBinary(ctx context.Context, log io.Writer) (string, error) {
	return nestedCommand{
		module: "controlplane", command: ".",
		what: "the control plane", parts: "etcd, kube-apiserver, kube-controller-manager",
	}.binary(ctx, log)
}

// csiAttacher is the command of internal/test/world/csiattacher, which has no code of its own.
const csiAttacher = "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher"

// CSIAttacherBinary returns the path of the csi-attacher that internal/test/world/csiattacher pins, as
// ControlPlaneBinary does. Its source comes from the Go module proxy.
func CSIAttacherBinary(ctx context.Context, log io.Writer) (string, error) {
	return nestedCommand{module: "csiattacher", command: csiAttacher, what: "csi-attacher", parts: csiAttacher}.binary(ctx, log)
}
