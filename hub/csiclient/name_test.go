package csiclient

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

func TestDiscoveryDoesNotRepeatWhatADriverAnswers(t *testing.T) {
	for _, code := range []codes.Code{codes.Internal, codes.Unauthenticated, codes.Unavailable, codes.DeadlineExceeded, 77} {
		d := startDriver(t, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.GetPluginInfo, Code: code, Message: "login with hunter22 failed"}}})
		if _, err := AskName(testContext(t), d.endpoint); err == nil || strings.Contains(err.Error(), "hunter22") || !strings.HasSuffix(err.Error(), code.String()) {
			t.Error(err)
		}
	}
}

func TestDiscoveryTakesNoLargeAnswer(t *testing.T) {
	name := field(1, []byte(strings.Repeat("n", maxAnswer))...)
	if got, err := AskName(testContext(t), rawServer(t, map[string][]byte{"GetPluginInfo": name})); err == nil {
		t.Errorf("got a name of %d bytes", len(got))
	}
	long := startDriver(t, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.GetPluginInfo, Code: codes.Unavailable, Message: strings.Repeat("n", maxHeaders)}}})
	if _, err := AskName(testContext(t), long.endpoint); err == nil || len(err.Error()) > MaxText {
		t.Errorf("got %.200v", err)
	}
}

func TestDiscoverySaysWhyNobodyListens(t *testing.T) {
	if _, err := AskName(testContext(t), socket(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	d := startDriver(t, fakecsi.Knobs{})
	if name, err := AskName(testContext(t), d.endpoint); name != driverName || err != nil {
		t.Error(name, err)
	}
}
