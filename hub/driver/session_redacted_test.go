package driver

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const repeatedSecret = "correct-horse-battery"

// repeatingSession is a driver that repeats a secret in each of its texts. It embeds no Session: a method that Session gets has to be
// added here too.
type repeatingSession struct{}

func errRepeated(method string) error {
	return fmt.Errorf("%s: bad password %q", method, repeatedSecret)
}

func (repeatingSession) ControllerPublishVolume(context.Context, *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return nil, errRepeated("publish")
}
func (repeatingSession) ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return nil, errRepeated("unpublish")
}
func (repeatingSession) ListVolumes(context.Context, int) (csiclient.Published, time.Duration, error) {
	return nil, 0, errRepeated("list")
}
func (repeatingSession) Probe(context.Context) error { return errRepeated("probe") }
func (repeatingSession) Info() csiclient.Info {
	return csiclient.Info{Version: "1.0 " + repeatedSecret}
}
func (repeatingSession) Ended() context.Context { return context.Background() }
func (repeatingSession) Close()                 {}

func TestEachMethodOfASessionIsRedacted(t *testing.T) {
	secrets := map[string]string{"password": repeatedSecret}
	err := error(nil)
	m := &Manager{options: &Options{}}
	m.Redactor = &attach.Redactor{Publications: func() []map[string]string { return []map[string]string{secrets} }}
	m.options.Connect = func(context.Context, registry.Driver) (Session, error) { return repeatingSession{}, err }
	s, _ := m.connect(t.Context(), registry.Driver{})
	a := attach.Attacher{Call: func(ctx context.Context, _ string, do func(context.Context, attach.Controller) error) error {
		return do(ctx, s)
	}, CallTimeout: time.Minute, Redactor: m.Redactor}

	calls := map[string]func() any{
		"Connect": func() any {
			err = errRepeated("connect")
			_, failed := m.connect(t.Context(), registry.Driver{})
			return failed
		},
		// The calls with secrets are redacted by their caller, which knows the secrets.
		"ControllerPublishVolume": func() any {
			_, err := a.Publish(t.Context(), attach.Plan{Publish: &csi.ControllerPublishVolumeRequest{}}, secrets)
			return err
		},
		"ControllerUnpublishVolume": func() any { return a.Unpublish(t.Context(), attach.Target{}, secrets) },
		"ListVolumes": func() any {
			_, _, err := s.ListVolumes(t.Context(), 1)
			return err
		},
		"Probe": func() any { return s.Probe(t.Context()) },
		"Info":  func() any { return s.Info() },
		"Ended": nil, // no text
		"Close": nil,
	}
	for method := range reflect.TypeFor[Session]().Methods() {
		if _, ok := calls[method.Name]; !ok {
			t.Errorf("Session.%s: nothing shows that its texts are redacted", method.Name)
		}
	}
	for name, call := range calls {
		if call == nil {
			continue
		}
		text := fmt.Sprintf("%+v", call())
		if strings.Contains(text, repeatedSecret) || !strings.Contains(text, "[secret]") {
			t.Errorf("%s: %s", name, text)
		}
	}
	if failed := s.Probe(t.Context()); errors.Unwrap(failed) != nil {
		t.Errorf("the error of Probe unwraps to %v", errors.Unwrap(failed))
	}
}
