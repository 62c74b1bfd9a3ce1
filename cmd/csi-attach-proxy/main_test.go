package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
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
		{"an argument", append(files, "proxy"), `unknown command "proxy"`},
		{"a target over TCP", append(files, "--target", "tcp://localhost:1"), `--target: "tcp://localhost:1" is no unix socket`},
		{"a target that is none", append(files, "--target", "/csi.sock"), "write unix:///"},
		{"a file that is missing", append(files, "--tls-key", f.Key+"x"), "there is no file " + f.Key + "x"},
		{"an address that is none", append(files, "--listen", "nowhere"), "--listen: "},
		{"an address for health that is none", append(files, "--listen", "127.0.0.1:0", "--health-listen", "nowhere"), "--health-listen: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stderr bytes.Buffer
			c := newCommand()
			c.SetArgs(test.args)
			c.SetErr(&stderr)
			if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(stderr.String(), test.want) {
				t.Errorf("got %v, stderr %q, want %q", err, stderr.String(), test.want)
			}
		})
	}
}

// The proxy stands beside every driver, so it must not weigh what a hub weighs. With a certificate, a health port and
// a driver that it probes it drains at SIGTERM.
func TestProgramIsSmallServesReadinessAndEndsAtSIGTERM(t *testing.T) {
	binary, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-proxy"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range info.Deps {
		if strings.HasPrefix(module.Path, "k8s.io/") && !strings.HasPrefix(module.Path, "k8s.io/klog") {
			t.Errorf("it links %s", module.Path)
		}
	}
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
	p, err := testbed.StartProcess(ctx, testbed.ProcessOptions{Name: "proxy", Path: binary, LogPath: filepath.Join(dir, "log"),
		Args: []string{"--listen=127.0.0.1:0", "--health-listen", health, "--target", driver.Endpoint(),
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
	if got := memory(t, p.PID()); got > 16<<20 {
		t.Errorf("it has %d bytes of memory, want 16 MiB at most", got)
	}
	if err := p.Stop(ctx, 30*time.Second); err != nil {
		t.Errorf("it does not end with exit code 0 on SIGTERM: %v", err)
	}
}

// memory is the resident memory of a process, in bytes.
func memory(t *testing.T, pid int) int {
	t.Helper()
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var total, resident int
	if _, err := fmt.Sscan(string(statm), &total, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * os.Getpagesize()
}

func TestEveryFlagInTheExampleExists(t *testing.T) {
	text, err := os.ReadFile("../../drivers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	args := regexp.MustCompile(`args: \[([^\]]+)\]`).Find(text)
	flags := regexp.MustCompile(`--([a-z-]+)=`).FindAllSubmatch(args, -1)
	if len(flags) < 5 {
		t.Errorf("found only %d flags", len(flags))
	}
	for _, m := range flags {
		if newCommand().Flags().Lookup(string(m[1])) == nil {
			t.Errorf("drivers.yaml: csi-attach-proxy has no flag --%s", m[1])
		}
	}
}
