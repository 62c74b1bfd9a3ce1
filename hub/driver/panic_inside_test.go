package driver

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestPanicWhileADriverIsTakenUpOrLetGoEndsItsRunAlone(t *testing.T) {
	d := routed(t)
	d.connectTo(publishing{})
	d.driver.update(func(s *state) { s.up, s.leader, s.role.mode = true, d, registry.ModeActive })
	d.driver.Logger = logr.Logger(funcr.New(func(_, args string) {
		if strings.Contains(args, "calls in flight may end") {
			panic("odd line")
		}
	}, funcr.Options{}))
	var err error
	d.fail = func(panicked error) { err = panicked }
	ctx, end := context.WithCancel(t.Context())
	end()
	d.run(ctx, lease.Always())
	if err == nil || !strings.Contains(err.Error(), "odd line") {
		t.Errorf("the run ended with %v, want the panic", err)
	}
}
