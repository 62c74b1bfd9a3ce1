package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// profileSeconds is the length of a CPU profile: about that of the bursts of a turn.
const profileSeconds = 10

// profiled calls do. If profiles are asked for and a is a hub, it takes a CPU profile meanwhile and a
// heap profile after.
func (s *stage) profiled(ctx context.Context, a *attacher, do func() error) error {
	if s.opts.Profiles == "" || a.name != hubName {
		return do()
	}
	var profiling sync.WaitGroup
	var failed error
	profiling.Go(func() {
		failed = s.profile(ctx, a, "cpu", fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileSeconds))
	})
	err := do()
	profiling.Wait()
	return errors.Join(err, failed, s.profile(ctx, a, "heap", "/debug/pprof/heap?gc=1"))
}

// profile writes a profile into a file. It replaces the file of the round before.
func (s *stage) profile(ctx context.Context, a *attacher, kind, path string) error {
	f, err := os.Create(filepath.Join(s.opts.Profiles, fmt.Sprintf("%s.%s.pprof", s.c.Name, kind)))
	if err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	err = testbed.Get(ctx, a.urls[0]+path, func(body io.Reader) error {
		_, err := io.Copy(f, body)
		return err
	})
	return errors.Join(err, f.Close())
}
