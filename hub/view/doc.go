// Package view answers what the status asks of the hub (status.Source): the served drivers, their VolumeAttachments and the
// checklist of a driver. It works for drivers of which this process only watches another attacher, too. All that it knows of a
// driver is a Driver, a value that the driver's manager makes for each question; it changes nothing.
//
// view.go has the drivers, attachments.go the VolumeAttachments, checklist.go and faults.go what is wrong with either.
//
// No Secret reaches the status: the package copies named fields into types of hub/status, which have none for a Secret or for a
// publish context. The checklist reads Secrets, and keeps only how many, and the name and error of one that it cannot read. Errors
// of the driver are redacted before (hub/attach/redactor.go); those that another attacher has written are shown as they are.
package view
