package hub

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestTheSocketsBesideAMissingOneAreFound(t *testing.T) {
	dir := testbed.ShortTempDir(t)
	for _, name := range []string{"b.sock", "a.sock", "new\nline"} {
		l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	if err := os.WriteFile(filepath.Join(dir, "file.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	endpoint := func(name string) registry.Endpoint { return registry.Endpoint("unix://" + filepath.Join(dir, name)) }
	if got, want := socketsBeside(endpoint("csi.sock")), (sockets{endpoint("a.sock"), endpoint("b.sock")}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, missing := range []registry.Endpoint{endpoint("none/csi.sock"), "tcp://host:1"} {
		if got := socketsBeside(missing); got != (sockets{}) {
			t.Errorf("%s: got %q, want none", missing, got)
		}
	}
}
