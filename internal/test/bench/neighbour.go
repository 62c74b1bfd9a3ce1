package main

import (
	"context"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
)

// neighbour is what the first driver does while bench measures the attaches of the others. begin makes its
// VolumeAttachments, and end blocks until they are gone.
type neighbour struct {
	begin, end func(ctx context.Context, volumes []volume) error
}

// nobody is a first driver without work.
var nobody = neighbour{
	begin: func(context.Context, []volume) error { return nil },
	end:   func(context.Context, []volume) error { return nil },
}

// burstOfOthers attaches the volumes of all drivers but the first one beside it, so many at once, and blocks until
// everything is detached again.
func (s *stage) burstOfOthers(ctx context.Context, a *attacher, beside neighbour, atOnce int) (t timing, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseFor, fmt.Errorf("not attached and detached after %v", phaseFor))
	defer cancel()
	var first, others []volume
	for _, v := range s.volumes {
		if v.driver == s.names[0] {
			first = append(first, v)
		} else {
			others = append(others, v)
		}
	}
	err = a.whileRuns(ctx, func(ctx context.Context) error {
		if err := beside.begin(ctx, first); err != nil {
			return err
		}
		for some := range slices.Chunk(others, atOnce) {
			one, err := s.change(ctx, "attached", isAttached, some, s.ask)
			if err != nil {
				return err
			}
			t.took = append(t.took, one.took...)
		}
		slices.Sort(t.took)
		if err := beside.end(ctx, first); err != nil {
			return err
		}
		_, err = s.change(ctx, "gone", isGone, others, s.release)
		return err
	})
	return t, err
}

// attachedThenGone blocks until the volumes of the first driver are attached, and then until they are gone.
func (s *stage) attachedThenGone(ctx context.Context, volumes []volume) error {
	err := s.Attachments.WaitFor(ctx, "the volumes of the first driver to be attached", func(all []*storagev1.VolumeAttachment) bool {
		attached := 0
		for _, va := range all {
			if va.Spec.Attacher == s.names[0] && va.Status.Attached {
				attached++
			}
		}
		return attached == len(volumes)
	})
	if err != nil {
		return err
	}
	_, err = s.change(ctx, "gone", isGone, volumes, s.release)
	return err
}
