// Package csiattacher pins the csi-attacher that tests run beside the hub. Its go.mod names the
// release; package testbed builds the command (testbed.CSIAttacherBinary). It is a module of its own,
// so that the versions of csi-attacher bind nobody.
package csiattacher
