package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

func TestProxySaysWhatIsWrongWithItsFlags(t *testing.T) {
	ca := certtest.NewAuthority(t, "ca")
	f := certtest.Write(t, t.TempDir(), ca, ca.Issue(certtest.Request{}))
	files := []string{"--tls-cert", f.Cert, "--tls-key", f.Key, "--client-ca", f.CA, "--allow-san", "hub"}
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"no files", nil, `required flag(s) "allow-san", "client-ca", "tls-cert", "tls-key" not set`},
		{"no name of a client", files[:6], `required flag(s) "allow-san" not set`},
		{"a target over TCP", append(files, "--target", "tcp://localhost:1"), "--target: must be a unix socket"},
		{"a target that is none", append(files, "--target", "/csi.sock"), `--target: "/csi.sock" is not an endpoint: write unix:///csi.sock`},
		{"a file that is missing", append(files, "--tls-key", f.Key+"x"), "there is no file " + f.Key + "x"},
		{"an address that is none", append(files, "--listen", "nowhere"), "--listen: "},
		{"an address for health that is none", append(files, "--listen", "127.0.0.1:0", "--health-listen", "nowhere"), "--health-listen: "},
		{"no room", append(files, "--max-connections", "0"), "at least 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(append([]string{"proxy"}, test.args...), &stdout, &stderr); code != 1 || !strings.Contains(stderr.String(), test.want) {
				t.Errorf("exit code %d, stderr %q, want %q", code, stderr.String(), test.want)
			}
		})
	}
}

func TestProxyServesReadinessOfItsDriver(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	s := &scene{t: t, ctx: ctx}
	backend, err := fakecsi.New(fakecsi.Options{Name: "d"})
	if err != nil {
		t.Fatal(err)
	}
	dir := testbed.ShortTempDir(t)
	driver, err := fakecsi.NewServer(fakecsi.ServerOptions{Backend: backend, Endpoint: "unix://" + filepath.Join(dir, "s")})
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(driver.Crash)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	health := free.Addr().String()
	free.Close()
	ca := certtest.NewAuthority(t, "ca")
	f := certtest.Write(t, dir, ca, ca.Issue(certtest.Request{}))
	p, err := testbed.StartProcess(ctx, testbed.ProcessOptions{Name: "proxy", Path: s.binary("./cmd/csi-attach-hub"), LogPath: filepath.Join(dir, "log"),
		Args: []string{"proxy", "--listen=127.0.0.1:0", "--health-listen", health, "--target", driver.Endpoint(),
			"--tls-cert", f.Cert, "--tls-key", f.Key, "--client-ca", f.CA, "--allow-san=hub"}})
	if err != nil {
		t.Fatal(err)
	}
	testbed.KillAtEnd(t, p)
	for code := 0; code != http.StatusOK; {
		resp, err := http.Get("http://" + health + "/readyz")
		if err == nil {
			code = resp.StatusCode
			resp.Body.Close()
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not ready: status %d, %v", code, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if backend.Books().Methods[fakecsi.Probe].Begun == 0 {
		t.Error("the driver was not probed")
	}
	s.checkExit(p)
}
