package registry_test

import (
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestEndpointOfASocketIsDialledAsWritten(t *testing.T) {
	longest := "/" + strings.Repeat("x", 106)
	for _, path := range []string{"/csi/ebs/csi.sock", "/s", "/csi/..data/csi.sock", "/csi/with space/a%20b?c#d", longest} {
		e, err := registry.ParseEndpoint("unix://" + path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if string(e) != "unix://"+path || e.Network() != "unix" || e.Address() != path {
			t.Errorf("%s became %q, network %q, address %q", path, e, e.Network(), e.Address())
		}
	}
}

func TestEndpointOfAnAddressIsDialledAsWritten(t *testing.T) {
	longest := strings.Repeat("a.", 126) + "a"
	for _, test := range []struct {
		address, host string
		local         bool
	}{
		{"localhost:1", "localhost", true},
		{"127.0.0.1:9443", "127.0.0.1", true},
		{"127.255.0.9:65535", "127.255.0.9", true},
		{"[::1]:9443", "::1", true},
		{"10.0.0.1:9443", "10.0.0.1", false},
		{"[fd00::1]:9443", "fd00::1", false},
		{"vsphere-csi.storage.svc:9443", "vsphere-csi.storage.svc", false},
		{"localhost.example.com:1", "localhost.example.com", false},
		{"0.0.0.0:1", "0.0.0.0", false},
		{"xn--gre-6ka8i.example:1", "xn--gre-6ka8i.example", false},
		{"3com:1", "3com", false},
		{longest + ":1", longest, false},
	} {
		e, err := registry.ParseEndpoint("tcp://" + test.address)
		if err != nil {
			t.Errorf("%s: %v", test.address, err)
			continue
		}
		if e.Network() != "tcp" || e.Address() != test.address || e.Host() != test.host || e.IsLocal() != test.local {
			t.Errorf("%s became network %q, address %q, host %q, local %t", test.address, e.Network(), e.Address(), e.Host(), e.IsLocal())
		}
	}
}

// The texts of the errors are in testdata/endpoints.errors.
func TestWhatIsNoEndpointIsAnError(t *testing.T) {
	for _, s := range []string{
		"", "unix", "unix:", "unix://", "unix:///", "/csi/csi.sock", "csi.sock", "unix:/csi.sock", "unix://csi.sock",
		"unix://host/csi.sock", "UNIX:///csi.sock", " unix:///csi.sock", "unix:////csi.sock", "unix:///csi//csi.sock",
		"unix:///csi/", "unix:///.", "unix:///csi/./csi.sock", "unix:///csi/..", "unix:///../csi.sock",
		"unix:///a\x00b", "unix:///a\nb", "unix:///" + strings.Repeat("x", 107),
		"tcp", "tcp:", "tcp://", "tcp://:1", "tcp://h", "tcp://h:", "tcp://h:0", "tcp://h:65536", "tcp://h:-1", "tcp://h:+1", "tcp://h:01",
		"tcp://h:http", "tcp://h:1/", "tcp://h:1:2", "tcp://H:1", "TCP://h:1", "tcp://h.:1", "tcp://.h:1", "tcp://a..b:1", "tcp://-a:1",
		"tcp://a_b:1", "tcp://a b:1", "tcp://user@h:1", "tcp://127.1:1", "tcp://2130706433:1", "tcp://0x7f000001.1:1", "tcp://1.2.3.256:1",
		"tcp://::1:1", "tcp://[::1]", "tcp://[0:0::1]:1", "tcp://[FD00::1]:1", "tcp://[::ffff:127.0.0.1]:1", "tcp://[fe80::1%eth0]:1",
		"tcp://[h]:1", "tcp://[127.0.0.1]:1", "tcp://" + strings.Repeat("a.", 127) + "a:1",
		"tcp://h\x00:1", "tcp://\u212a:1", "localhost:1", "unix-abstract:csi", "@csi", "http://csi",
	} {
		if e, err := registry.ParseEndpoint(s); err == nil || e != "" {
			t.Errorf("%q became %q with error %v", s, e, err)
		}
	}
}
