package registry_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// stage is a Source together with what it looks at.
type stage struct {
	source func() registry.Source    // called once, after set
	set    func(names ...string)     // makes these drivers the ones that there are
	wait   func(ctx context.Context) // until the latest Run notices changes; nil: it does at once
}

// stages has one for each Source that there is.
var stages = map[string]func(t *testing.T) stage{
	"file":         fileStage,
	"file, polled": polledFileStage,
	"CSIDrivers":   csiDriverStage,
}

func fileStage(t *testing.T) stage {
	path := filepath.Join(t.TempDir(), "drivers.yaml")
	return stage{
		source: func() registry.Source { return follow(newFile(t, path, time.Hour)) },
		set:    func(names ...string) { write(t, path, driversFile(names...)) },
	}
}

func polledFileStage(t *testing.T) stage {
	path := filepath.Join(t.TempDir(), "drivers.yaml")
	return stage{
		source: func() registry.Source { return follow(newFile(t, path, time.Millisecond).WithoutWatcher()) },
		set:    func(names ...string) { write(t, path, driversFile(names...)) },
	}
}

func csiDriverStage(t *testing.T) stage {
	kube := fake.NewClientset()
	watches := make(chan struct{}, 100)
	// What the fake is told between list and watch is seen by neither.
	kube.PrependWatchReactor("csidrivers", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := kube.Tracker().Watch(action.GetResource(), "")
		watches <- struct{}{}
		return true, w, err
	})
	there := map[string]bool{}
	client := kube.StorageV1().CSIDrivers()
	return stage{
		source: func() registry.Source { return registry.NewCSIDriverSource(kube.StorageV1()) },
		set: func(names ...string) {
			for _, name := range slices.Sorted(maps.Keys(there)) {
				if !slices.Contains(names, name) {
					delete(there, name)
					check(t, client.Delete(t.Context(), name, metav1.DeleteOptions{}))
				}
			}
			for _, name := range names {
				if !there[name] {
					there[name] = true
					_, err := client.Create(t.Context(), csiDriver(name), metav1.CreateOptions{})
					check(t, err)
				}
			}
		},
		wait: func(ctx context.Context) {
			select {
			case <-watches:
			case <-ctx.Done():
			}
		},
	}
}

func csiDriver(name string) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// forEachSource runs a test on every Source.
func forEachSource(t *testing.T, test func(t *testing.T, s stage)) {
	for name, newStage := range stages {
		t.Run(name, func(t *testing.T) { test(t, newStage(t)) })
	}
}

func TestSourceSendsTheLatestSetAfterChanges(t *testing.T) {
	forEachSource(t, func(t *testing.T, s stage) {
		s.set("a")
		r := runSource(t, s.source())
		r.expect("a")
		s.waitUntilWatching(t)
		s.set("a", "b") // nobody receives
		s.set("b")
		s.set("b", "c", "d")
		s.set("d", "e")
		r.expect("d", "e")
		s.set()
		r.expect()
	})
}

func TestCancelledSourceReturnsWithoutAReceiver(t *testing.T) {
	forEachSource(t, func(t *testing.T, s stage) {
		s.set("a")
		source := s.source()
		for range 2 { // it may run again
			r := runSource(t, source)
			r.expect("a")
			s.waitUntilWatching(t)
			s.set("a", "b") // which nobody receives
			s.set("a")
			r.stop()
		}
	})
}

func (s stage) waitUntilWatching(t *testing.T) {
	if s.wait != nil {
		s.wait(t.Context())
	}
}

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
		<-ended
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
