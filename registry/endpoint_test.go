package registry

import (
	"net"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzParseEndpoint shows that each is dialled as it is written.
func TestEndpointsAreTaken(t *testing.T) {
	for endpoint, local := range map[string]bool{
		"unix:///csi/ebs/csi.sock": true, "unix:///s": true, "unix:///csi/..data/csi.sock": true, "unix:///csi/with space/a%20b?c#d": true, "unix:///" + strings.Repeat("x", 106): true,
		"tcp://localhost:1": true, "tcp://127.0.0.1:9443": true, "tcp://127.255.0.9:65535": true, "tcp://[::1]:9443": true,
		"tcp://10.0.0.1:9443": false, "tcp://[fd00::1]:9443": false, "tcp://vsphere-csi.storage.svc:9443": false, "tcp://localhost.example.com:1": false,
		"tcp://0.0.0.0:1": false, "tcp://xn--gre-6ka8i.example:1": false, "tcp://3com:1": false, "tcp://" + strings.Repeat("a.", 126) + "a:1": false,
	} {
		if e, err := ParseEndpoint(endpoint); err != nil || e.Network()+"://"+e.Address() != endpoint || e.IsLocal() != local {
			t.Errorf("%s became network %q, address %q, local %t: %v", endpoint, e.Network(), e.Address(), e.IsLocal(), err)
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
		if e, err := ParseEndpoint(s); err == nil || e != "" {
			t.Errorf("%q became %q with error %v", s, e, err)
		}
	}
}

// suggestion is what an error says to write instead, if that is an endpoint and not a
// placeholder for one.
var suggestion = regexp.MustCompile(`(?s)(?:write|written as) ((?:unix|tcp)://.*)$`)

// What is taken for an endpoint can be dialled as it is written; what is not is explained,
// on one line, and what is proposed instead is taken.
func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"unix:///csi/csi.sock", "tcp://[::1]:9443", "tcp://h.svc:1", "unix:/a", "a:1", "tcp://H:01", "unix:///a/../b", "tcp://1.2.3.4.:5", "tcp://[::ffff:1.2.3.4]:1", "unix://\xff", "tcp://\u212a:1"} {
		f.Add(s)
	}
	longest := 2*len(quote(strings.Repeat("\xff", maxQuoted+1))) + 150 // the endpoint and its bad part, and a sentence
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEndpoint(s)
		if err != nil {
			if e != "" || strings.ContainsFunc(err.Error(), unicode.IsControl) || len(err.Error()) > longest {
				t.Errorf("%q became %q, %q", s, e, err)
			}
			// Where it is clear what was meant, the proposal is the last of the message.
			if m := suggestion.FindStringSubmatch(err.Error()); m != nil && !strings.Contains(m[1], " or ") && !strings.Contains(m[1], ", ") && !strings.Contains(m[1], "host:port") && !strings.Contains(m[1], "path/to") {
				if _, again := ParseEndpoint(m[1]); again != nil {
					t.Errorf("%q: the proposal %q is not taken: %v", s, m[1], again)
				}
			}
			return
		}
		if string(e) != s || e.Network()+"://"+e.Address() != s {
			t.Errorf("%q became %q, network %q, address %q", s, e, e.Network(), e.Address())
		}
		switch e.Network() {
		case "unix":
			if a := e.Address(); path.Clean(a) != a || !path.IsAbs(a) || len(a) > maxSocketPath || !e.IsLocal() || e.Host() != "" || strings.Contains(a, "\x00") {
				t.Errorf("socket %q", a)
			}
		case "tcp":
			host, port, err := net.SplitHostPort(e.Address())
			if err != nil || host == "" || host != e.Host() || port == "" || !utf8.ValidString(s) || strings.ToLower(s) != s {
				t.Errorf("address %q, host %q: %v", e.Address(), e.Host(), err)
			}
			if ip := net.ParseIP(host); e.IsLocal() != (host == "localhost" || ip != nil && ip.IsLoopback()) {
				t.Errorf("%q is local: %t", s, e.IsLocal())
			}
		default:
			t.Errorf("network %q", e.Network())
		}
	})
}

func TestPatternAllowsOneSegmentPerStarAndAllBelowATrailingOne(t *testing.T) {
	for _, test := range []struct {
		pattern, endpoint string
		want              bool
	}{
		{"unix:///csi/*", "unix:///csi/a.sock", true},
		{"unix:///csi/*", "unix:///csi/ebs/deep/csi.sock", true},
		{"unix:///csi/*", "unix:///csi", false},
		{"unix:///csi/*", "unix:///csi2/csi.sock", false},
		{"unix:///csi/*", "unix:///etc/csi/csi.sock", false},
		{"unix:///*", "unix:///any/where", true},
		{"unix:///csi/*/csi.sock", "unix:///csi/ebs/csi.sock", true},
		{"unix:///csi/*/csi.sock", "unix:///csi/ebs/deep/csi.sock", false},
		{"unix:///csi/*/csi.sock", "unix:///csi/csi.sock", false},
		{"unix:///csi/e*s/csi.sock", "unix:///csi/es/csi.sock", true},
		{"unix:///csi/e*s/csi.sock", "unix:///csi/efs/csi.sock", true},
		{"unix:///csi/a*", "unix:///csi/ab", true},
		{"unix:///csi/a*", "unix:///csi/ab/c", false},
		{"unix:///csi/csi.sock", "unix:///csi/csi.sock", true},
		{"unix:///csi/csi.sock", "unix:///csi/csiXsock", false},
		{"unix:///csi/csi.sock", "unix:///csi/csi.sock2", false},
		{"unix:///csi/[ab]", "unix:///csi/a", false},
		{"tcp://*.storage.svc:9443", "tcp://ebs.storage.svc:9443", true},
		{"tcp://*.storage.svc:9443", "tcp://a.b.storage.svc:9443", false},
		{"tcp://*.storage.svc:9443", "tcp://storage.svc:9443", false},
		{"tcp://*.storage.svc:9443", "tcp://ebs.storage.svc:9444", false},
		{"tcp://*.storage.svc:9443", "tcp://ebs.storage.svc.evil:9443", false},
		{"tcp://csi-*.svc:*", "tcp://csi-a.svc:1", true},
		{"tcp://*:9443", "tcp://ebs:9443", true},
		{"tcp://*:9443", "tcp://ebs.evil:9443", false},
		{"tcp://10.0.0.*:9443", "tcp://10.0.0.7:9443", true},
		{"tcp://10.0.0.*:9443", "tcp://10.0.1.7:9443", false},
		{"tcp://[fd00::*]:9443", "tcp://[fd00::7]:9443", true},
		{"tcp://[fd00::*]:9443", "tcp://[fd00::7:8]:9443", false},
		{"tcp://*.storage.svc:9443", "unix:///ebs.storage.svc:9443", false},
	} {
		p := EndpointPattern(test.pattern)
		if err := p.check(); err != nil {
			t.Errorf("%s: %v", test.pattern, err)
			continue
		}
		e, err := ParseEndpoint(test.endpoint)
		if err != nil {
			t.Errorf("%s: %v", test.endpoint, err)
			continue
		}
		if got := p.Allows(e); got != test.want {
			t.Errorf("%s allows %s: %v, want %v", test.pattern, test.endpoint, got, test.want)
		}
	}
}

func TestPatternThatCanAllowNothingIsAnError(t *testing.T) {
	for _, s := range []string{"", "*", "unix:*", "unix://*", "/csi/*", "unix:///csi/../*", "unix:///csi//*", "unix:///csi/",
		"tcp://", "tcp://*", "tcp://*.svc", "tcp://A.svc:*", "http://*", "tcp"} {
		if EndpointPattern(s).check() == nil {
			t.Errorf("%q is taken", s)
		}
	}
}
