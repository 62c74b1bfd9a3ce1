// Package diagnosis names what keeps a volume from being attached or detached, and what an
// error means. It has one text for each: the status page and explain print the same. Texts with figures of the
// hub's model (a full node, a driver that is not served) are in hub/status.
//
// The flow: hub/attach and hub turn an error into a Cause, a typed value; Parse does the same
// for an error of which only the text in a VolumeAttachment's status is left. hub/status
// compares what it knows of a driver and of a VolumeAttachment (status.DiagnoseDriver,
// status.DiagnoseWork), hub/view the objects of an attached volume, and answers with a Diagnosis: a Verdict for programs, the object, the
// fact and the actions for people. A fact has no age in it, so that equal causes have equal facts; actions are imperatives
// that end with a full stop. internal/explain adds the verdicts that only the objects of
// Kubernetes show.
//
// The package imports no other package of this module and knows no client: it is plain values.
package diagnosis
