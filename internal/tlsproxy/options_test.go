package tlsproxy

import (
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
)

func TestOptionsThatCannotBeMeantAreErrors(t *testing.T) {
	s := newScene(t, nil)
	for name, spoil := range map[string]func(*Options){
		"no target":            func(o *Options) { o.Target = "" },
		"no allowed name":      func(o *Options) { o.AllowedSANs = nil },
		"empty allowed name":   func(o *Options) { o.AllowedSANs = []string{"hub", ""} },
		"no connections":       func(o *Options) { o.MaxConnections = 0 },
		"no idle timeout":      func(o *Options) { o.IdleTimeout = 0 },
		"no handshake timeout": func(o *Options) { o.HandshakeTimeout = 0 },
		"no probe timeout":     func(o *Options) { o.ProbeTimeout = 0 },
		"negative grace":       func(o *Options) { o.Grace = -1 },
		"no files":             func(o *Options) { o.Files = tlsfiles.Files{} },
	} {
		o := s.options
		spoil(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
