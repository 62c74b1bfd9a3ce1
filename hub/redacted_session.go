package hub

import (
	"context"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// redactedSession is a Session whose texts are safe to store, log and show, except the errors of the calls with
// secrets: attach.Attacher knows which secrets these had.
type redactedSession struct {
	Session
	redactor *attach.Redactor
	info     csiclient.Info // with a redacted version
}

// connect connects to the driver once. Its errors are safe to store, log and show.
func (m *manager) connect(ctx context.Context, d registry.Driver) (Session, error) {
	s, err := m.hub.options.Connect(ctx, d)
	if err != nil {
		return nil, m.redactor.Error(err)
	}
	info := s.Info()
	info.Version = m.redactor.Text(info.Version, csiclient.MaxVersion)
	return redactedSession{s, m.redactor, info}, nil
}

// Info implements Session.
func (s redactedSession) Info() csiclient.Info { return s.info }

// Probe implements Session.
func (s redactedSession) Probe(ctx context.Context) error {
	return s.redactor.Error(s.Session.Probe(ctx))
}

// ListVolumes implements Session.
func (s redactedSession) ListVolumes(ctx context.Context, pageSize int) (csiclient.Published, time.Duration, error) {
	published, took, err := s.Session.ListVolumes(ctx, pageSize)
	return published, took, s.redactor.Error(err)
}
