package driver

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

func TestPanicWhileADriverIsTakenUpOrLetGoEndsItsRunAlone(t *testing.T) {
	d := routed(t)
	d.connectTo(publishing{})
	d.driver.setUp(true, func(*state) {})
	d.driver.logger = logr.Logger(funcr.New(func(_, args string) {
		if strings.Contains(args, "Serving driver") {
			panic("odd line")
		}
	}, funcr.Options{}))
	err := d.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "odd line") {
		t.Errorf("the run ended with %v, want the panic", err)
	}
}
