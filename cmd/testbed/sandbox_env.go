package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// variable is a line of the env file.
type variable struct{ name, value string }

// envPath returns the path of the env file.
func (b *sandbox) envPath() string { return filepath.Join(b.folder.dir, "env") }

// programs returns the folder that has csi-attach-hub and testbed under these names.
func (b *sandbox) programs() string { return filepath.Join(b.folder.dir, "bin") }

// variables are those of the env file, but PATH.
func (b *sandbox) variables() []variable {
	all := []variable{
		{sandboxVariable, b.socket()},
		{"KUBECONFIG", b.Plane.Kubeconfig()},
		{"HUB", b.hubs[hubNames[0]].url},
		{"HUB2", b.hubs[hubNames[1]].url},
		{"DRIVERS_YAML", b.ConfigPath()},
	}
	for _, p := range b.running {
		name := strings.ToUpper(p.short)
		all = append(all, variable{name + "_SOCKET", p.Socket}, variable{name + "_CONTROL", p.control()})
	}
	return all
}

// writeEnv writes a file for a shell to source: where everything is, and the programs in PATH.
func (b *sandbox) writeEnv() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if err := os.Mkdir(b.programs(), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	for name, path := range map[string]string{"testbed": self, "csi-attach-hub": b.opts.hub} {
		if err := os.Symlink(path, filepath.Join(b.programs(), name)); err != nil {
			return fmt.Errorf("write env file: %w", err)
		}
	}
	var text strings.Builder
	text.WriteString("# The sandbox of csi-attach-hub, for a shell to source.\n")
	for _, v := range b.variables() {
		fmt.Fprintf(&text, "export %s=%s\n", v.name, quoted(v.value))
	}
	fmt.Fprintf(&text, "export PATH=%s:\"$PATH\"\n", quoted(b.programs()))
	if err := os.WriteFile(b.envPath(), []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("write env file: %w", err)
	}
	return nil
}

// quoted returns a text as a word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
