package csiclient

import (
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

func succeeded(s Step) bool { return s.Tried && s.Err == nil }

func TestExaminationHasEachStepAndBothCertificates(t *testing.T) {
	p := newParties(t)
	d := startTCPDriver(t, p.serverTLS())
	d.turn(t, fakecsi.Knobs{NotReady: new(true)})
	e := Examine(testContext(t), secured(d.endpoint, p.files))
	if !succeeded(e.Connect) || !succeeded(e.TLS) || !succeeded(e.PluginInfo) || !succeeded(e.Capabilities) || e.Probe.Err != ErrNotReady {
		t.Errorf("steps: %+v", e)
	}
	if e.Own == nil || e.Server == nil || len(e.Server.DNSNames) != 1 || e.Server.DNSNames[0] != serverName || "tcp://"+e.Remote != string(d.endpoint) {
		t.Errorf("certificates %v and %v of %s", e.Own, e.Server, e.Remote)
	}
	if e.Info.Name != driverName || e.Info.Version != "1.2.3" || !e.Info.Capabilities.PublishUnpublish {
		t.Errorf("info: %+v", e.Info)
	}
	for method, book := range d.Books().Methods {
		if begun := book.Begun; begun > 0 && (method == fakecsi.ControllerPublishVolume || method == fakecsi.ControllerUnpublishVolume) {
			t.Errorf("%d calls of %s", begun, method)
		}
	}
}

func TestExaminationOfAServerThatSpeaksNoGRPCFailsToConnect(t *testing.T) {
	endpoint := socket(t)
	listener, err := fakecsi.Listen(string(endpoint))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	if e := Examine(testContext(t), at(endpoint)); e.Connect.Err == nil || e.PluginInfo.Tried {
		t.Errorf("got %+v", e)
	}
}
