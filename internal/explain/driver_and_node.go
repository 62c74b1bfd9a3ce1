package explain

import (
	"cmp"
	"context"
	"fmt"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// mostDangling is how many dangling volumes a report about a driver names.
const mostDangling = 5

// explainDriver answers for a driver. For a driver that the hub serves, result and reasons are those of the hub: all views
// show the same.
func (e *explainer) explainDriver(ctx context.Context, r *Report) (exists bool) {
	v := &volume{explainer: e, driver: e.question.Name}
	v.readDriver(ctx)
	s := e.subject(ctx, r, status.AttachmentFilter{Driver: v.driver, Health: []status.HealthState{status.Broken, status.Attention}})
	r.Result = NotKnown
	if v.served != nil {
		v.servedSubject(ctx, s)
		r.Result = Result(v.served.Health.State)
	} else {
		v.service()
		for _, f := range v.lastResorts {
			v.stop(f)
		}
		if stop := v.report.Stop; stop != nil {
			v.cure(stop)
			health := status.Attention
			if len(r.VolumeAttachments) > 0 {
				health = status.Broken // they wait for it
			}
			s.add(health, *stop)
			s.Since, r.Result = stop.Since, Result(health)
		}
		s.Details, s.Notes = append(s.Details, v.report.Path...), v.report.Notes
	}
	s.State = status.HealthState(r.Result)
	if v.noAttach() && v.served == nil { // else it is a reason of its health
		s.say("CSIDriver %s has attachRequired: false: volumes of the driver need no attach", v.driver)
	}
	return v.served != nil || !v.csiDriver.missing || v.leaseRead.value != nil || e.view.Unserved[v.driver] > 0 || v.stopsAt(diagnosis.DriverConflict, diagnosis.EndpointNotAllowed, diagnosis.ConfigBroken) ||
		e.HubErr != nil // the hub may serve it
}

func (s *SubjectReport) say(format string, args ...any) {
	s.Details = append(s.Details, fmt.Sprintf(format, args...))
}

// servedSubject says what the hub knows of the driver.
func (v *volume) servedSubject(ctx context.Context, s *SubjectReport) {
	d := v.served
	for _, r := range d.Health.Reasons {
		f := v.finding(r.Diagnosis)
		v.cure(&f)
		s.add(r.State, f)
	}
	s.Since = d.Health.Since
	if mistakes := v.rejected("the driver is served as it was before"); mistakes.Verdict != "" {
		s.Notes = append(s.Notes, mistakes)
	}
	if known, err := v.Hub.Driver(ctx, d.Replica, d.Name); err != nil {
		v.missed("the checklist of the driver", err)
		s.incomplete = true
	} else {
		s.Checks = known.Checklist
	}
	s.say("configured by %s", cmp.Or(d.Source, "the flags of the hub"))
	if d.Lease.Mine && d.Up {
		s.say("%s works for the driver", cmp.Or(d.Leader, "the hub"))
	}
	for _, u := range d.Dangling[:min(mostDangling, len(d.Dangling))] {
		s.Notes = append(s.Notes, v.finding(u.Diagnose(d.Name)))
	}
}

// explainNode answers for a node.
func (e *explainer) explainNode(ctx context.Context, r *Report) (exists bool, err error) {
	v := &volume{explainer: e, nodeName: e.question.Name}
	v.node = e.nodeNamed(ctx, v.nodeName)
	v.csiNode = one(ctx, &e.reader, "CSINode", "", v.nodeName, e.Kube.StorageV1().CSINodes().Get)
	s := e.subject(ctx, r, status.AttachmentFilter{Node: v.nodeName})
	r.Result = Result(status.Fine)
	if v.node.value == nil && v.csiNode.value == nil && len(r.VolumeAttachments) == 0 {
		return false, v.node.err
	}
	if v.csiNode.missing {
		v.withoutDriver()
	} else if v.csiNode.value != nil {
		registered := map[string]bool{}
		for _, d := range v.csiNode.value.Spec.Drivers {
			registered[d.Name] = true
			limit := "no limit"
			if n := attach.Allocatable(v.csiNode.value, d.Name); n > 0 {
				limit = fmt.Sprintf("limit %d (allocatable.count)", n)
			}
			s.say("driver %s: node ID %s, %s", d.Name, d.NodeID, limit)
		}
		for _, a := range r.VolumeAttachments {
			switch {
			case a.Fault.Verdict == diagnosis.NodeIDChanged && v.report.Stop == nil:
				v.stop(v.finding(a.Fault))
			case !registered[a.Driver] && a.Operation != status.Detach:
				registered[a.Driver], v.driver = true, a.Driver // once
				v.withoutDriver()
			}
		}
	}
	v.nodeNotes()
	for _, d := range e.view.Drivers {
		if full := d.FullNode(v.nodeName); full != nil && full.Waiting > 0 {
			v.note(v.finding(full.Diagnose(d.Name)))
		}
	}
	if v.report.Stop != nil {
		s.add(status.Attention, *v.report.Stop)
	}
	for _, f := range v.report.Notes {
		s.add(status.Attention, f)
	}
	if len(s.Reasons) > 0 {
		s.Since, r.Result = s.Reasons[0].Since, Attention
	}
	s.State = status.HealthState(r.Result)
	return true, nil
}

// subject begins the answer for a driver or a node, with the VolumeAttachments that a filter selects as the hub sees them: the
// worst first.
func (e *explainer) subject(ctx context.Context, r *Report, f status.AttachmentFilter) *SubjectReport {
	r.Subject = &SubjectReport{Details: []string{}, incomplete: e.HubErr != nil}
	if e.HubErr == nil {
		if err := e.Hub.Volumes(ctx, e.view, f, func(a status.Attachment) { r.VolumeAttachments = append(r.VolumeAttachments, a) }); err != nil {
			e.missed("the VolumeAttachments in the hub", err)
			r.Subject.incomplete = true
		}
	}
	status.WorstFirst(r.VolumeAttachments)
	return r.Subject
}
