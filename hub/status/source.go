package status

import "context"

// Source is the running hub. Its methods are called from many goroutines at once and must not wait
// for a driver or for the API server, except Checklist. The caller owns what they return, with all that is in it.
type Source interface {
	// Drivers returns every driver that is engaged, each name once, in any order.
	Drivers() []Driver
	// Attachments returns the VolumeAttachments that the filter selects, in any order. It may
	// return more: the caller applies the filter again.
	Attachments(AttachmentFilter) []Attachment
	// Checklist returns the checks of a driver, for which it may wait for the API server for some seconds.
	Checklist(ctx context.Context, driver string) []Check
	// Overview returns the state of the hub, without its drivers.
	Overview() Overview
}
