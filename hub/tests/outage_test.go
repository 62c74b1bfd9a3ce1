package tests

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

func TestAPIServerThatStopsInTheMiddleOfAttachesLosesAndDoublesNone(t *testing.T) {
	const n = 200
	plane := testbed.OwnControlPlane(t, testbed.ControlPlaneOptions{})
	w := newWorldOn(t, plane)
	x := w.tap()
	driver, backend := w.driver("d", fakecsi.Options{})
	w.turn(backend, fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{fakecsi.ControllerPublishVolume: {Base: 100 * time.Millisecond}}})
	var nodes []string
	for i := range 4 {
		nodes = append(nodes, w.node(fmt.Sprintf("n%d", i), driver))
	}
	var volumes, vas []testbed.Object
	for i := range n {
		name := w.name(fmt.Sprintf("v%d", i))
		volumes = append(volumes, testbed.PersistentVolume{Name: name, Driver: driver})
		vas = append(vas, testbed.VolumeAttachment{Name: name, Driver: driver, Node: nodes[i%len(nodes)], PersistentVolume: name})
	}
	w.create(volumes...)
	w.create(vas...)
	stop := w.start()
	w.waitBooks(backend, "half of the volumes are attached", func(b fakecsi.Books) bool { return len(b.Attached) >= n/2 })
	plane.Kill()
	if err := plane.StartAgain(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.waitAllAttached(n)
	w.checkBooks(map[string]int{driver: n})
	published := map[string]int{}
	for _, call := range backend.Books().CallsOf(fakecsi.ControllerPublishVolume, "") {
		published[call.Volume]++
	}
	if len(published) != n {
		t.Errorf("%d volumes published, want %d", len(published), n)
	}
	for volume, times := range published {
		if times > 1 { // it succeeded, and only the status could not be written
			t.Errorf("%s was published %d times", volume, times)
		}
	}
	ours := []string{"/hub.", "/hub/attach.", "/hub/csiclient."}
	if len(goroutinesOf(ours...)) == 0 {
		t.Error("no goroutine of the running hub is seen, so none that is left behind would be")
	}
	stop()
	for _, s := range x.sessions() {
		<-s.Ended().Done()
	}
	left := goroutinesOf(ours...)
	for i := 0; i < 100 && len(left) > 0; i++ { // what has said that it is done is about to end
		runtime.Gosched()
		left = goroutinesOf(ours...)
	}
	if len(left) > 0 {
		t.Errorf("%d goroutines are left behind:\n%s", len(left), strings.Join(left, "\n\n"))
	}
}

// goroutinesOf returns the stacks in which a package of this repository occurs.
func goroutinesOf(packages ...string) []string {
	var text bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		return []string{err.Error()}
	}
	var names []string
	for _, p := range packages {
		names = append(names, regexp.QuoteMeta("csi-attach-hub"+p))
	}
	ours := regexp.MustCompile(strings.Join(names, "|"))
	var left []string
	for stack := range strings.SplitSeq(text.String(), "\n\n") {
		if ours.MatchString(stack) {
			left = append(left, stack)
		}
	}
	return left
}

// sessions returns all that the hub has had.
func (x *wire) sessions() []hubdriver.Session {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.opened
}
