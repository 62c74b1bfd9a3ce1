package tlsfiles

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

// Interval is the time between two readings of the files.
const Interval = 10 * time.Second

// Follow reads the files of a port with each tick until ctx ends, and calls take with each new content. If
// the files are not whole, it logs that and keeps the content in use. At the
// start it logs a certificate that has expired or is not valid yet.
func Follow(ctx context.Context, used *Material, ticks <-chan time.Time, take func(*Material)) {
	logger := klog.FromContext(ctx).WithValues("certificate", used.files.Cert)
	if err := used.CheckTime(time.Now()); err != nil {
		logger.Info("Clients will reject the certificate of this port", "err", err)
	}
	var problem loglimit.Problem
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		next, err := used.Reload()
		if err != nil && problem.IsDue(err.Error(), time.Now()) {
			logger.Info("New TLS files rejected; the previous ones stay active", "err", err)
		}
		if next != nil {
			take(next)
			close(used.replaced)
			used = next
			logger.Info("Loaded new TLS files", "expires", next.Certificate.Leaf.NotAfter)
		}
	}
}
