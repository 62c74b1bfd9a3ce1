package registry

import "testing"

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
