package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// profileSeconds is for how long a CPU profile is taken: about as long as the bursts of a
// turn take.
const profileSeconds = 10

// profiled does something while a CPU profile is taken of a hub, and takes a heap profile
// then, if profiles are asked for.
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

// profile writes a profile into a file, over that of the round before.
func (s *stage) profile(ctx context.Context, a *attacher, kind, path string) error {
	f, err := os.Create(filepath.Join(s.opts.Profiles, fmt.Sprintf("%s.%s.pprof", s.c.Name, kind)))
	if err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	return errors.Join(a.fetch(ctx, path, f), f.Close())
}

// url is where the first process serves HTTP.
func (a *attacher) url() string { return strings.TrimSuffix(a.metrics[0], "/metrics") }

// fetch writes what the first process serves at a path.
func (a *attacher) fetch(ctx context.Context, path string, to io.Writer) error {
	url := a.url() + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("get %s: %w", url, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("get %s: %w", url, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, response.Status)
	}
	if _, err := io.Copy(to, response.Body); err != nil {
		return fmt.Errorf("get %s: %w", url, err)
	}
	return nil
}
