package registry_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// follow returns a ConfigSource as a Source that sends the drivers of each Config, the first one at once.
func follow(s registry.ConfigSource) registry.Source {
	return func(ctx context.Context, send func([]registry.Driver)) {
		sendConfig := func() { send(slices.Collect(maps.Values(s.Config().Drivers()))) }
		sendConfig()
		s.Run(ctx, sendConfig)
	}
}

// sourceRun is a source that runs.
type sourceRun struct {
	t    *testing.T
	out  chan []registry.Driver // holds the latest set until it is received
	stop func()                 // and wait for its end
}

// send replaces the set that nobody has received.
func (r *sourceRun) send(set []registry.Driver) {
	select {
	case <-r.out:
	default:
	}
	r.out <- set
}

func runSource(t *testing.T, source registry.Source) *sourceRun {
	t.Helper()
	logger := ktesting.NewLogger(t, ktesting.NewConfig())
	return runSourceWith(t, klog.NewContext(t.Context(), logger), source)
}

func runSourceWith(t *testing.T, ctx context.Context, source registry.Source) *sourceRun {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	r := &sourceRun{t: t, out: make(chan []registry.Driver, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		source(ctx, r.send)
	}()
	r.stop = func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("the source did not end for a minute")
		}
	}
	t.Cleanup(r.stop)
	return r
}

// next returns the names of the next set.
func (r *sourceRun) next() []string {
	r.t.Helper()
	select {
	case set := <-r.out:
		names := []string{}
		for _, d := range set {
			names = append(names, d.Name)
		}
		slices.Sort(names)
		return names
	case <-time.After(time.Minute):
		r.t.Fatal("no set came for a minute")
		return nil
	}
}

// expect waits for a set.
func (r *sourceRun) expect(names ...string) {
	r.t.Helper()
	for {
		got := r.next()
		if slices.Equal(got, names) {
			return
		}
		r.t.Logf("passing over the set %v", got)
	}
}

func newFile(t *testing.T, path string, poll time.Duration) *registry.File {
	t.Helper()
	f, err := registry.NewFile(path, registry.DefaultSettings())
	check(t, err)
	return f.At(poll, time.Millisecond)
}

// driversFile is a drivers.yaml with drivers of these names.
func driversFile(names ...string) string {
	if len(names) == 0 {
		return header + "drivers: []\n"
	}
	var b strings.Builder
	b.WriteString(header + "drivers:\n")
	for _, name := range names {
		fmt.Fprintf(&b, "  - name: %s\n    endpoint: unix:///csi/%s\n", name, name)
	}
	return b.String()
}

func write(t *testing.T, path, content string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte(content), 0o600))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
