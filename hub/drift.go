package hub

import "context"

func (d *driver) watchDrift(ctx context.Context) { <-ctx.Done() }
