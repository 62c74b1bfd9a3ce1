package registry_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// script is a Source that says what a test tells it to.
type script struct {
	sets chan []registry.Driver // to be sent
	runs int
	live int // runs that have not returned
}

func newScript() *script { return &script{sets: make(chan []registry.Driver, 10)} }

func (s *script) run(ctx context.Context, send func([]registry.Driver)) {
	s.runs, s.live = s.runs+1, s.live+1
	defer func() { s.live-- }()
	for {
		select {
		case set := <-s.sets:
			send(set)
		case <-ctx.Done():
			return
		}
	}
}

// scriptedFile is a ConfigSource.
type scriptedFile struct {
	*script
	t      *testing.T
	start  func() // the Registry
	mu     sync.Mutex
	config *registry.Config
}

func (f *scriptedFile) Name() string { return "file" }

func (f *scriptedFile) Config() *registry.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config
}

func (f *scriptedFile) Run(ctx context.Context, changed func()) {
	f.run(ctx, func([]registry.Driver) { changed() })
}

// say makes the file another one.
func (f *scriptedFile) say(content string) {
	f.t.Helper()
	config, err := registry.Parse("f.yaml", []byte(content))
	check(f.t, err)
	f.mu.Lock()
	f.config = config
	f.mu.Unlock()
	f.sets <- nil // it has changed
	f.start()
}

// registryTest is a Registry that runs on scripts.
type registryTest struct {
	t        *testing.T
	registry *registry.Registry
	file     *scriptedFile
	objects  *script
	lines    <-chan string
	stop     func()
}

// onScripts runs a test of a Registry in virtual time. It starts when the file says something.
func onScripts(t *testing.T, test func(r *registryTest)) {
	synctest.Test(t, func(t *testing.T) {
		r := &registryTest{t: t, file: &scriptedFile{script: newScript(), t: t}, objects: newScript()}
		r.registry = registry.New(r.file, r.objects.run)
		ctx, lines := logContext(t)
		r.lines = lines
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		r.file.start = sync.OnceFunc(func() { go func() { done <- r.registry.Run(ctx) }() })
		r.stop = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run ended with %v", err)
			}
			if live := r.file.live + r.objects.live; live > 0 {
				t.Errorf("%d sources still run", live)
			}
		})
		defer r.stop()
		test(r)
	})
}

// served is the names of the next snapshot, or of none.
func (r *registryTest) served() string {
	synctest.Wait()
	select {
	case snapshot := <-r.registry.Updates():
		return "[" + strings.Join(slices.Sorted(maps.Keys(snapshot)), " ") + "]"
	default:
		return "none"
	}
}

func (r *registryTest) expect(want string) {
	r.t.Helper()
	if got := r.served(); got != want {
		r.t.Errorf("served are %s, want %s", got, want)
	}
}

const onlyObjects = "discovery: {csiDrivers: {enabled: true, allowedEndpoints: [unix:///*]}}\n"

// As CSIDriver objects do, to somebody without permission to read them.
func TestSourceThatNeverSaysAnythingKeepsTheOthersFromBeingServedForALimitedTime(t *testing.T) {
	onScripts(t, func(r *registryTest) {
		r.file.say(driversFile("f") + onlyObjects)
		time.Sleep(20 * time.Second)
		r.file.say(driversFile("f", "g") + onlyObjects)
		time.Sleep(9 * time.Second)
		r.expect("none")
		time.Sleep(time.Second)
		r.expect("[f g]")
		logged(t, r.lines, "The CSIDriver objects are not known yet")
		r.file.say(driversFile("g") + onlyObjects)
		r.expect("[g]")
		r.objects.sets <- []registry.Driver{object("o", "unix:///o")}
		r.expect("[g o]")
		time.Sleep(time.Hour)
		if len(r.lines) > 0 {
			t.Errorf("logged: %s", <-r.lines)
		}
	})
}

func TestTheLatestSnapshotThatDiffersIsSent(t *testing.T) {
	onScripts(t, func(r *registryTest) {
		for _, names := range [][]string{{"a"}, {"a", "b"}, {"c"}} {
			r.file.say(driversFile(names...))
			synctest.Wait()
		}
		r.expect("[c]")
		r.expect("none")
		r.file.say(driversFile()) // no drivers are a snapshot too
		r.expect("[]")
		r.file.say(driversFile("a") + onlyObjects)
		r.objects.sets <- nil
		r.expect("[a]")
		r.file.say(driversFile("a") + onlyObjects)
		r.objects.sets <- []registry.Driver{object("x", "not an endpoint")}
		r.expect("none") // it is equal
		r.file.say(driversFile("b"))
		synctest.Wait()
		r.stop() // while nobody takes it
		r.expect("[b]")
	})
}

func TestSourceFollowsTheFile(t *testing.T) {
	onScripts(t, func(r *registryTest) {
		r.file.say(driversFile("f"))
		r.expect("[f]")
		r.file.say(driversFile("f", "g") + onlyObjects)
		r.expect("none") // nobody is retired meanwhile
		r.objects.sets <- []registry.Driver{object("o", "unix:///o"), object("p", "")}
		r.expect("[f g o]")
		// A rule that changes needs no source to start again.
		r.file.say(driversFile("f") + strings.Replace(onlyObjects, "enabled", "endpointTemplate: 'unix:///t/{driver}', enabled", 1))
		r.expect("[f o p]")
		r.file.say(driversFile("f") + "discovery: {csiDrivers: {enabled: false}}\n")
		r.expect("[f]")
		if r.objects.runs != 1 || r.objects.live != 0 {
			t.Errorf("the source ran %d times and %d run", r.objects.runs, r.objects.live)
		}
	})
}

func TestSourceThatSaysNothingHoldsChangesBackForALimitedTime(t *testing.T) {
	onScripts(t, func(r *registryTest) {
		r.file.say(driversFile("a"))
		r.expect("[a]")
		r.file.say(driversFile("a", "b") + onlyObjects)
		time.Sleep(29 * time.Second)
		r.expect("none")
		time.Sleep(time.Second)
		r.expect("[a b]")
		r.file.say(driversFile("b") + onlyObjects)
		r.expect("[b]") // it was waited for once
		r.objects.sets <- []registry.Driver{object("o", "unix:///o")}
		r.expect("[b o]")
	})
}

func TestConflictsAreLoggedWhenTheyCome(t *testing.T) {
	onScripts(t, func(r *registryTest) {
		r.file.say(driversFile("f") + onlyObjects)
		r.objects.sets <- []registry.Driver{object("f", "unix:///other")}
		r.expect("[f]")
		conflicts := r.registry.Conflicts()
		if len(conflicts) != 1 || conflicts[0].Winner != "f.yaml:4" || conflicts[0].Loser != "CSIDriver f" {
			t.Errorf("the conflicts are %+v", conflicts)
		}
		if before := logged(t, r.lines, "Conflict"); before > 0 {
			t.Errorf("%d lines before", before)
		}
		r.file.say("# one line more\n" + driversFile("f") + onlyObjects)
		r.objects.sets <- []registry.Driver{object("f", "unix:///other"), object("s", "unix:///s")}
		r.expect("[f s]")
		if len(r.lines) > 0 {
			t.Errorf("logged again: %s", <-r.lines)
		}
		if got := r.registry.Conflicts(); len(got) != 1 || got[0].Winner != "f.yaml:5" {
			t.Errorf("the conflicts are %+v", got)
		}
		r.objects.sets <- []registry.Driver{object("s", "unix:///s")}
		r.expect("none")
		if got := r.registry.Conflicts(); len(got) > 0 {
			t.Errorf("the conflicts are %+v", got)
		}
	})
}
