package registry

import (
	"net"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// suggestion is what an error says to write instead, if that is an endpoint and not a
// placeholder for one.
var suggestion = regexp.MustCompile(`(?s)(?:write|written as) ((?:unix|tcp)://.*)$`)

// What is taken for an endpoint can be dialled as it is written; what is not is explained,
// on one line, and what is proposed instead is taken.
func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"unix:///csi/csi.sock", "tcp://[::1]:9443", "tcp://h.svc:1", "unix:/a", "a:1", "tcp://H:01", "unix:///a/../b", "tcp://1.2.3.4.:5", "tcp://[::ffff:1.2.3.4]:1", "unix://\xff", "tcp://\u212a:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEndpoint(s)
		if err != nil {
			if e != "" || strings.ContainsFunc(err.Error(), unicode.IsControl) || len(err.Error()) > 1000 {
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

// What is taken for a driver's name makes a finalizer and a lease that the API server
// takes, the same every time.
func FuzzDriverName(f *testing.F) {
	for _, s := range []string{"ebs.csi.aws.com", "A-b.C", strings.Repeat("a", 63), "a-", "ü", "a..b", "-", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		sanitized := SanitizedName(name)
		if SanitizedName(sanitized) != sanitized {
			t.Errorf("%q became %q, which becomes %q", name, sanitized, SanitizedName(sanitized))
		}
		if err := CheckName(name); err != nil {
			if strings.ContainsFunc(err.Error(), unicode.IsControl) || len(err.Error()) > 1000 {
				t.Errorf("%q", err)
			}
			return
		}
		if wrong := validation.IsQualifiedName("external-attacher/" + sanitized); wrong != nil {
			t.Errorf("finalizer of %q: %v", name, wrong)
		}
		if wrong := validation.IsDNS1123Subdomain(LeaseName(name)); wrong != nil {
			t.Errorf("lease of %q: %v", name, wrong)
		}
	})
}
