package main

import (
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// calls counts publishes and unpublishes.
type calls struct{ publish, unpublish int }

func (c calls) minus(before calls) calls {
	return calls{c.publish - before.publish, c.unpublish - before.unpublish}
}

// all returns the sum: an attach should make no unpublish, and a detach no publish.
func (c calls) all() int { return c.publish + c.unpublish }

func countCalls(drivers []*testbed.Driver) calls {
	var sum calls
	for _, d := range drivers {
		books := d.Backend.Books()
		sum.publish += books.Methods[fakecsi.ControllerPublishVolume].Begun
		sum.unpublish += books.Methods[fakecsi.ControllerUnpublishVolume].Begun
	}
	return sum
}
