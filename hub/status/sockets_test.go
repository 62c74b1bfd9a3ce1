package status

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

func TestASocketBesideAMissingOneIsProposed(t *testing.T) {
	for _, tt := range []struct {
		sockets []string
		text    string
	}{
		{nil, "creates the socket unix:///csi/x.sock"},
		{[]string{"unix:///csi/csi.sock"}, "write its socket as `endpoint` in its entry: the folder has unix:///csi/csi.sock."},
		{[]string{"unix:///csi/a.sock", "unix:///csi/b.sock"}, "the folder has unix:///csi/a.sock, unix:///csi/b.sock."},
	} {
		d := Driver{Name: "x", State: "Connecting", Endpoint: "unix:///csi/x.sock", Mode: "active", Reason: "dial unix /csi/x.sock: connect: no such file or directory",
			ConnectionError: Failure{Text: "no such file or directory"}, Sockets: tt.sockets}
		got := DiagnoseDriver(d, LeaseRecord{}, nil, time.Now())
		if got.Verdict != diagnosis.SocketMissing || !strings.Contains(got.Actions[0], tt.text) {
			t.Errorf("sockets %q: got %+v", tt.sockets, got)
		}
	}
}
