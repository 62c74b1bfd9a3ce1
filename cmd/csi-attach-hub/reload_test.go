package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// rewrite replaces drivers.yaml under the hub.
func (s *scene) rewrite() {
	s.t.Helper()
	path := filepath.Join(s.dir, "drivers.yaml")
	if err := os.WriteFile(path+".new", s.config.Bytes(), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.t.Fatal(err)
	}
}

// loggedTimes waits until the hub's log has the words so often.
func loggedTimes(s *scene, hub *testbed.Process, words string, n int) {
	s.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		data, err := os.ReadFile(hub.LogPath())
		if err == nil && bytes.Count(data, []byte(words)) >= n {
			return
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("the hub's log did not say %q %d times", words, n)
		}
	}
}

func TestDriverIsAddedAndRemovedByAnEditOfTheFile(t *testing.T) {
	s := newScene(t, "edit")
	a, booksOfA := s.serve("a", filepath.Join(s.dir, "a"))
	b, booksOfB := s.serve("b", filepath.Join(s.dir, "b"))
	entry := func(driver, socket string) string {
		return fmt.Sprintf("  - {name: %s, endpoint: \"unix://%s\"}\n", driver, filepath.Join(s.dir, socket))
	}
	s.configure("drivers:\n%s", entry(a, "a"))
	hub := s.startHub()
	ofA, ofB := s.attachments(a, 10), s.attachments(b, 10)
	s.create(ofA[:5]...)
	s.create(ofB[:5]...)
	s.waitFor("those of a attached", attachedAtLeast(5))

	s.configure("drivers:\n%s%s", entry(b, "b"), entry(a, "a"))
	s.rewrite()
	s.waitFor("those of b too", attachedAtLeast(10))

	s.configure("drivers:\n%s", entry(b, "b"))
	s.rewrite()
	if err := hub.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	logged(s, hub, fmt.Sprintf(`"Driver is no longer configured, draining it" driver=%q`, a))
	s.create(ofA[5:]...)
	s.create(ofB[5:]...)
	s.waitFor("all of b", attachedAtLeast(15))
	s.waitFor("none of the new ones of a", func(own []*storagev1.VolumeAttachment) bool { return countAttached(own) == 15 })

	s.config.WriteString("# broken\nworker: 7\n")
	s.rewrite()
	logged(s, hub, "Configuration file rejected")
	s.configure("drivers:\n%s%s", entry(a, "a"), entry(b, "b"))
	s.rewrite()
	s.waitFor("all attached", testbed.AllAttached(20))
	for _, books := range []fakecsi.Books{booksOfA.Books(), booksOfB.Books()} {
		if got := books.Methods[fakecsi.ControllerPublishVolume].Begun; got != 10 {
			t.Errorf("%s: %d publishes, want 10", books.Driver, got)
		}
	}
	if got := booksOfB.Books().Methods[fakecsi.GetPluginInfo].Begun; got != 1 {
		t.Errorf("%s was connected to %d times, want once: no change was about it", b, got)
	}
	s.checkExit(hub)
}

// attachAndDetach asks for all to be attached, and at once for those that are going to
// be detached: before, while and after they are attached.
func (s *scene) attachAndDetach(going, staying []testbed.Object) error {
	if err := s.cluster.Create(s.ctx, slices.Concat(going, staying)...); err != nil {
		return err
	}
	return s.cluster.Delete(s.ctx, going...)
}

func TestVolumesOfTenDriversEndAsAskedWhileTheFileIsRewrittenFiftyTimes(t *testing.T) {
	const drivers, volumes, rewrites = 10, 100, 50
	s := newScene(t, "fifty")
	names := make([]string, drivers)
	backends := make([]*fakecsi.Backend, drivers)
	for i := range drivers {
		names[i], backends[i] = s.serve(fmt.Sprintf("d%d", i), filepath.Join(s.dir, fmt.Sprintf("d%d", i)))
		latency := map[fakecsi.Method]fakecsi.Latency{
			fakecsi.ControllerPublishVolume:   {Base: 300 * time.Millisecond, Jitter: 100 * time.Millisecond},
			fakecsi.ControllerUnpublishVolume: {Base: 100 * time.Millisecond},
		}
		if err := backends[i].Set(fakecsi.Knobs{Latency: latency}); err != nil {
			t.Fatal(err)
		}
	}
	// The first three have other settings in each version, the fourth comes and goes,
	// and the rest is never meant.
	version := func(n int) {
		s.configure("%sdrivers:\n", strings.Repeat("# so that each line moves\n", n%3))
		for i, name := range names {
			settings := ""
			switch {
			case i < 3:
				settings = fmt.Sprintf(", timeout: %ds, workers: %d, retry: {max: %ds}", 60+n, 4+n%4, 10+n)
			case i == 3 && n%5 == 1:
				continue
			default:
				settings = ", workers: 6"
			}
			fmt.Fprintf(&s.config, "  - {name: %s, endpoint: \"unix://%s/d%d\"%s}\n", name, s.dir, i, settings)
		}
		if n%5 == 3 {
			s.config.WriteString("  - {name: half of an entry}\n")
		}
	}
	version(0)
	hub := s.startHub("--shutdown-grace", "1m")
	var staying, going []testbed.Object
	for _, name := range names {
		all := s.attachments(name, volumes)
		staying, going = append(staying, all[:volumes/2]...), append(going, all[volumes/2:]...)
	}
	for _, name := range names {
		logged(s, hub, fmt.Sprintf(`"Driver state" driver=%q state="Ready"`, name))
	}
	asked := make(chan error, 1)
	go func() { asked <- s.attachAndDetach(going, staying) }()
	good, bad := 0, 0
	for n := 1; n <= rewrites; n++ {
		version(n)
		s.rewrite()
		if n%2 == 0 { // at once, instead of by the watch
			if err := hub.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
		if n%5 == 3 {
			bad++
			loggedTimes(s, hub, `"Configuration file rejected`, bad)
		} else {
			good++
			loggedTimes(s, hub, `"Configuration reloaded"`, good)
		}
	}
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	s.waitFor("half of all attached, the others gone", testbed.AllAttached(len(staying)))
	for i, backend := range backends {
		if err := backend.Wait(s.ctx, func(b fakecsi.Books) bool { return len(b.Attached) == volumes/2 }); err != nil {
			t.Errorf("%s has %d volumes attached, want %d", names[i], len(backend.Books().Attached), volumes/2)
		}
	}
	s.checkExit(hub)
	for i, backend := range backends {
		b := backend.Books()
		if err := b.Check(); err != nil {
			t.Error(err)
		}
		for _, o := range staying[i*volumes/2 : (i+1)*volumes/2] {
			if name := o.(testbed.VolumeAttachment).Name; len(b.Attached[name]) != 1 {
				t.Errorf("%s is not attached", name)
			}
		}
		for _, o := range going[i*volumes/2 : (i+1)*volumes/2] {
			if name := o.(testbed.VolumeAttachment).Name; len(b.Attached[name]) > 0 {
				t.Errorf("%s is still attached, after %+v", name, append(b.CallsOf(fakecsi.ControllerPublishVolume, name), b.CallsOf(fakecsi.ControllerUnpublishVolume, name)...))
			}
		}
		if got := b.Methods[fakecsi.GetPluginInfo].Begun; i != 3 && got != 1 {
			t.Errorf("%s was connected to %d times, want once: its endpoint never changed", b.Driver, got)
		}
		if got := b.Methods[fakecsi.ControllerPublishVolume].Begun; i != 3 && got > volumes {
			t.Errorf("%s: %d publishes of %d volumes", b.Driver, got, volumes)
		}
	}
	if got := backends[3].Books().Methods[fakecsi.GetPluginInfo].Begun; got < 2 {
		t.Errorf("%s was connected to %d times: it was not removed and added again", names[3], got)
	}
}
