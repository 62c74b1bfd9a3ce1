package status

// Source is the running hub, as far as it can be seen. Its methods are called at any
// time, from many goroutines at once, and must not wait for a driver or for the API
// server. What they return belongs to the caller, with all that is in it.
type Source interface {
	// Drivers returns every driver that is engaged, each name once, in any order.
	Drivers() []Driver
	// Attachments returns the VolumeAttachments that the filter lets pass, in any order.
	// More may be returned: the filter is applied again.
	Attachments(AttachmentFilter) []Attachment
	// Overview returns what is not about one driver.
	Overview() Overview
}
