package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

const (
	// The list of a hostile driver has pages of 15 MiB: its volumes have long handles.
	hostileHandle, hostileVolumes = 30 << 10, 5000
	// hostileCalls is the least number of calls to it: as many of the hub's default workers as attaches always get.
	hostileCalls = 10
)

// hostilities are the sizes of a hostile driver's answers, by turns.
var hostilities = []struct{ publishContext, errorText int }{
	{250 << 10, 120 << 10}, // the largest that are accepted
	{319 << 10, 120 << 10}, // the largest that are read
	{15 << 20, 5 << 20},
}

// turnOfHostile measures how long all drivers but the first one take to attach their volumes, by turns while the
// first one attaches its volumes as they do, and while all its answers are as large as possible.
func turnOfHostile(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	if _, err := s.burst(ctx, a, s.warmUp); err != nil {
		return nil, err
	}
	var counted []Figures
	for i := range s.c.Bursts {
		var with, without timing
		for j := range 2 {
			t, knobs, undo := &without, fakecsi.Knobs{}, fakecsi.Knobs{}
			if (i+j)%2 == 1 { // by turns the first one
				t = &with
				knobs, undo = s.hostility(i % len(hostilities))
			}
			var err error
			if *t, err = s.besideFirst(ctx, knobs, undo); err != nil {
				return nil, err
			}
		}
		f := Figures{OthersP50: without.percentile(50), OthersP50Hostile: with.percentile(50)}
		f[HostileRatio] = f[OthersP50Hostile] / f[OthersP50]
		counted = append(counted, f)
		s.say("%s: p50 of the others %s, beside a hostile driver %s", a.name, duration(f[OthersP50]), duration(f[OthersP50Hostile]))
	}
	figures := medians(counted)
	end := a.usage()
	figures[ResidentEnd], figures[ResidentPeak] = end.resident, end.peak
	return figures, nil
}

// hostility returns what makes the first driver answer with as much as one of hostilities says, and what ends that. Half of its volumes
// get a publish context, the other half an error.
func (s *stage) hostility(which int) (knobs, undo fakecsi.Knobs) {
	size := hostilities[which]
	var handles []string
	for i := range hostileVolumes {
		handles = append(handles, fmt.Sprintf("%0*d", hostileHandle, i))
	}
	knobs = fakecsi.Knobs{GainVolumes: handles, PublishContext: map[string]string{"blob": strings.Repeat("x", size.publishContext)}}
	first, _ := s.firstAndOthers()
	for i := 0; i < len(first); i += 2 {
		knobs.Fail = append(knobs.Fail, fakecsi.Fault{
			Method: fakecsi.ControllerPublishVolume, Volume: first[i].name, Code: codes.Internal, Message: strings.Repeat("x", size.errorText),
		})
	}
	return knobs, fakecsi.Knobs{ClearFaults: true, PublishContext: map[string]string{}, LoseVolumes: handles}
}

func (s *stage) firstAndOthers() (first, others []volume) {
	for _, v := range s.volumes {
		if v.driver == s.names[0] {
			first = append(first, v)
		} else {
			others = append(others, v)
		}
	}
	return first, others
}

// besideFirst attaches the volumes of all drivers but the first one, one of each at once, while the first one is as knobs
// say and attaches its volumes. It blocks until everything is detached again.
func (s *stage) besideFirst(ctx context.Context, knobs, undo fakecsi.Knobs) (t timing, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseFor, fmt.Errorf("not attached and detached after %v", phaseFor))
	defer cancel()
	first, others := s.firstAndOthers()
	backend := s.Drivers[0].Backend
	if err := backend.Set(knobs); err != nil {
		return t, err
	}
	begun := backend.Books().Methods[fakecsi.ControllerPublishVolume].Begun
	if err := each(ctx, first, s.ask); err != nil {
		return t, err
	}
	err = backend.Wait(ctx, func(b fakecsi.Books) bool {
		return b.Methods[fakecsi.ControllerPublishVolume].Begun >= begun+min(hostileCalls, len(first))
	})
	if err != nil {
		return t, err
	}
	for some := range slices.Chunk(others, len(s.names)-1) {
		one, err := s.attach(ctx, some)
		if err != nil {
			return t, err
		}
		t.took = append(t.took, one.took...)
	}
	slices.Sort(t.took)
	if err := backend.Set(undo); err != nil {
		return t, err
	}
	err = s.Attachments.WaitFor(ctx, "the volumes of the first driver to be attached", func(all []*storagev1.VolumeAttachment) bool {
		return !slices.ContainsFunc(all, func(va *storagev1.VolumeAttachment) bool { return !va.Status.Attached })
	})
	if err != nil {
		return t, err
	}
	_, err = s.detach(ctx, s.volumes)
	return t, err
}
