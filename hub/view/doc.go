// Package view answers what the status asks of the hub (status.Source): the served drivers, their VolumeAttachments and the
// checklist of a driver. It works for drivers of which this process only watches another attacher, too. All that it knows of a
// driver is a Driver, a value that the driver's manager makes for each question; it changes nothing.
package view
