package registry_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestTransportIsReadAsWritten(t *testing.T) {
	files := registry.TLS{CAFile: "/tls/ca.crt", CertFile: "/tls/tls.crt", KeyFile: "/tls/tls.key"}
	named := func(serverName string) registry.TLS {
		t := files
		t.ServerName = serverName
		return t
	}
	const tls = `tls: {caFile: /tls/ca.crt, certFile: /tls/tls.crt, keyFile: /tls/tls.key`
	for _, test := range []struct {
		name, defaults, entry string
		want                  registry.TLS
		insecure              bool
	}{
		{"the server is called as its host", "", `endpoint: "tcp://csi.storage.svc:9443", ` + tls + `}`, named("csi.storage.svc"), false},
		{"the server is called as its address", "", `endpoint: "tcp://[fd00::1]:9443", ` + tls + `}`, named("fd00::1"), false},
		{"the server has another name", "", `endpoint: "tcp://10.0.0.1:9443", ` + tls + `, serverName: csi}`, named("csi"), false},
		{"TLS to the same machine", "", `endpoint: "tcp://localhost:9443", ` + tls + `}`, named("localhost"), false},
		{"TLS where others need none", "insecure: true", `endpoint: "tcp://csi:9443", ` + tls + `}`, named("csi"), false},
		{"TLS and insecure: false", "", `endpoint: "tcp://csi:9443", insecure: false, ` + tls + `}`, named("csi"), false},
		{"insecure", "", `endpoint: "tcp://csi:9443", insecure: true`, registry.TLS{}, true},
		{"insecure by default", "insecure: true", `endpoint: "tcp://csi:9443"`, registry.TLS{}, true},
		{"a socket", "", `endpoint: "unix:///csi"`, registry.TLS{}, false},
		{"a socket that is insecure", "", `endpoint: "unix:///csi", insecure: true`, registry.TLS{}, true},
		{"localhost", "", `endpoint: "tcp://localhost:9443"`, registry.TLS{}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, err := registry.Parse("f.yaml", []byte(header+"defaults: {"+test.defaults+"}\ndrivers:\n- {name: a, "+test.entry+"}\n"))
			check(t, err)
			d := config.Drivers()["a"]
			if diff := cmp.Diff(test.want, d.TLS); diff != "" || d.Insecure != test.insecure {
				t.Errorf("insecure is %t, want %t; TLS (-want +got):\n%s", d.Insecure, test.insecure, diff)
			}
			if err := d.CheckTransport(); err != nil {
				t.Error(err)
			}
		})
	}
}
