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

// The texts of the errors are in testdata/endpoints.errors.
func TestWhatIsNoEndpointIsAnError(t *testing.T) {
	for _, s := range []string{
		"", "unix", "unix:", "unix://", "unix:///", "/csi/csi.sock", "csi.sock", "unix:/csi.sock", "unix://csi.sock",
		"unix://host/csi.sock", "UNIX:///csi.sock", " unix:///csi.sock", "unix:////csi.sock", "unix:///csi//csi.sock",
		"unix:///csi/", "unix:///.", "unix:///csi/./csi.sock", "unix:///csi/..", "unix:///../csi.sock",
		"unix:///a\x00b", "unix:///a\nb", "unix:///" + strings.Repeat("x", 107),
		"tcp://localhost:1", "localhost:1", "unix-abstract:csi", "@csi", "http://csi",
	} {
		if e, err := registry.ParseEndpoint(s); err == nil || e != "" {
			t.Errorf("%q became %q with error %v", s, e, err)
		}
	}
}
