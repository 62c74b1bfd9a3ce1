package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// The socket of something else may be in the folder of a driver that does not run: only a single one is worth a command.
func TestASocketBesideAMissingOneIsProposed(t *testing.T) {
	for _, tt := range []struct {
		sockets  []string
		text     string
		commands []string
	}{
		{nil, "creates the socket unix:///csi/x.sock", nil},
		{[]string{"unix:///csi/csi.sock"}, "the folder has unix:///csi/csi.sock.", []string{"csi-attach-hub set FILE x endpoint=unix:///csi/csi.sock"}},
		{[]string{"unix:///csi/a.sock", "unix:///csi/b.sock"}, "the folder has unix:///csi/a.sock, unix:///csi/b.sock.", nil},
	} {
		d := Driver{Name: "x", State: "Connecting", Endpoint: "unix:///csi/x.sock", Mode: "active", Reason: "dial unix /csi/x.sock: connect: no such file or directory",
			ConnectionError: Failure{Text: "no such file or directory"}, Sockets: tt.sockets}
		got := DiagnoseDriver(d, LeaseRecord{}, nil, time.Now())
		if got.Verdict != diagnosis.SocketMissing || !strings.Contains(got.Actions[0], tt.text) || !slices.Equal(got.Commands, tt.commands) {
			t.Errorf("sockets %q: got %+v", tt.sockets, got)
		}
	}
}
