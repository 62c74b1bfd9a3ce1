package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/certtest"
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
