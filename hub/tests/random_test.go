package tests

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/race"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// TestVolumesAreSafeWhateverHappens takes random steps in virtual time and checks at each call, at each
// write and in the end that no volume comes to harm and that nothing is left over.
//
// A seed fixes the steps that are drawn. It does not fix which goroutine runs first, so a seed may fail in one
// run out of several: repeat it with -count. A failed run prints its steps, calls and writes.
//
//	SEED=7 go test -run TestVolumesAreSafeWhateverHappens ./hub/tests     # this seed, with the log of the hubs
//	SEEDS=300 go test -run TestVolumesAreSafeWhateverHappens ./hub/tests  # seeds 1 to 300
func TestVolumesAreSafeWhateverHappens(t *testing.T) {
	seeds, logs := committedSeeds, false
	if race.Detector {
		seeds = seeds[:scenarios] // one of each scenario; make test runs all without the race detector
	}
	if text := os.Getenv("SEED"); text != "" {
		seeds, logs = []uint64{parseSeed(t, text)}, true
	} else if text := os.Getenv("SEEDS"); text != "" {
		seeds = nil
		for seed := range parseSeed(t, text) {
			seeds = append(seeds, seed+1)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) { newTrial(v, seed, logs).run() })
		})
	}
}

// committedSeeds are those of each run of the tests, of each scenario some that take little time. SEEDS runs more.
var committedSeeds = []uint64{1, 2, 3, 4, 6, 7, 14, 20, 435, 470}

func parseSeed(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("a seed or a number of seeds: %v", err)
	}
	return n
}

// scenario says which steps are fair. What README.md names as a limit is never drawn:
//
//   - What a VolumeAttachment without a finalizer has left published, and what a node's former ID has, is
//     known to one process alone. So finalizers are stripped, and node IDs changed while something is
//     published there, only in a trial with one replica that lives to the end; and finalizers only while that
//     replica works for the driver, with a watch that tells it.
//   - A volume is given up after ten definitive errors within stuckAfter. So a trial has few of them.
//   - A process that is stopped in the middle of a call may leave the call with the driver. Virtual time does not
//     stop for one process alone, so this is not drawn either.
type scenario int

const (
	alone    scenario = iota // one replica without leases, which lives to the end
	leased                   // the same with a lease, which it loses at times
	replicas                 // two replicas, which end, crash, start and lose their leases
	scenarios
)

const (
	trialSteps = 60
	// trialWait is how long everything may take to come to rest when all faults have ended.
	trialWait = 2 * time.Hour
	// trialRest is how long nothing may be called and written after that.
	trialRest = 10 * time.Minute
)

// trial is one run: the world, what happens to it, and what is wrong with it.
type trial struct {
	*virtual
	scenario scenario
	random   *rand.Rand // of the steps; used by the goroutine of the test alone
	unowned  *rand.Rand // of what is attached by hand; used likewise
	others   *rand.Rand // of what kubelets use and of attachRequired; used likewise
	replicas []*replica
	volumes  []trialVolume
	nodes    []*trialNode
	held     map[string]bool // resources whose watches are held
	ends     []faultEnd
	step     int
	logs     bool
	began    time.Time
	// definitive is how many definitive errors may still be drawn.
	definitive int
	noAttach   bool // attachRequired is false

	mu             sync.Mutex
	faults         *rand.Rand           // of what requests to the API meet; guarded by mu
	apiFaults      bool                 // guarded by mu
	refused        bool                 // nobody answers at the driver's endpoint; guarded by mu
	contested      map[string]bool      // single-node volumes that were asked for on two nodes at once; guarded by mu
	metFault       map[string]time.Time // when a request about a volume has met a fault last; guarded by mu
	unnamed        map[string]time.Time // since when no VolumeAttachment names a volume; guarded by mu
	writes         int                  // that replicas have made; guarded by mu
	atOnce         map[string]int       // calls at one moment; guarded by mu
	atOnceSince    time.Time            // that moment; guarded by mu
	strips         int                  // how often somebody has stripped finalizers; guarded by mu
	everUnrequired bool                 // attachRequired was false; guarded by mu
	trace          []string             // guarded by mu
	wrong          []string             // guarded by mu
}

// trialVolume is a volume with its name as the handle.
type trialVolume struct {
	name      string
	multiNode bool
}

// trialNode is a node with the ID that the driver has for it now.
type trialNode struct{ name, id string }

// faultEnd ends a fault at a step.
type faultEnd struct {
	step int
	end  func()
}

// run takes the steps, then ends all faults and waits until nothing moves, then deletes everything.
func (t *trial) run() {
	defer t.report()
	defer t.bookmarks()()
	for t.step = range trialSteps {
		t.endFaults(t.step)
		t.pass(0)
		t.takeStep()
		t.attachBehindTheBack()
		t.changeAttachRequired()
		t.pass(t.pause())
		t.checkNow()
	}
	t.endFaults(trialSteps + trialSteps)
	t.say("ALL FAULTS END")
	t.heal()
	t.await("in the end", t.unsettled)
	t.say("EVERYTHING IS DELETED")
	for _, va := range t.attachments() {
		t.deleteAttachment(va)
	}
	for _, volume := range t.volumes {
		t.virtual.delete(testbed.PersistentVolume{Name: volume.name})
	}
	t.await("after everything was deleted", t.leftOver)
}

// bookmarks tells the watches once a minute how far they have come, until the returned function is called.
func (t *trial) bookmarks() (stop func()) {
	ticker, ended := time.NewTicker(time.Minute), make(chan struct{})
	go func() {
		for {
			select {
			case <-ticker.C:
				t.api.Bookmark()
			case <-ended:
				return
			}
		}
	}()
	return func() { ticker.Stop(); close(ended) }
}

// pause is how long a step is left alone: mostly the next one comes soon.
func (t *trial) pause() time.Duration {
	pauses := []time.Duration{0, 0, time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond, time.Second, time.Second, 5 * time.Second, 20 * time.Second,
		time.Minute, 2 * time.Minute}
	return pauses[t.random.IntN(len(pauses))]
}

// await lets time pass until find finds nothing any more, and checks that nothing is called or written
// from then on.
func (t *trial) await(when string, find func() []string) {
	for began := time.Now(); time.Since(began) < trialWait && len(find()) > 0; {
		t.pass(time.Minute)
		t.checkNow()
	}
	for _, found := range find() {
		t.fail("%s: %s", when, found)
	}
	for _, va := range t.attachments() {
		if !va.Status.Attached {
			return // tries to attach go on
		}
	}
	t.pass(2 * time.Minute) // the last retries, and a listing
	calls, writes := t.calledAndWritten()
	t.pass(trialRest)
	t.checkNow()
	c, w := t.calledAndWritten()
	t.check(safety.AtMost(fmt.Sprintf("%s: calls and writes in %v, though nothing is to be done", when, trialRest), c-calls+w-writes, 0))
}

func (t *trial) calledAndWritten() (calls, writes int) {
	for _, m := range []fakecsi.Method{publish, unpublish} {
		calls += t.backend.Books().Methods[m].Begun
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return calls, t.writes
}

// attachmentOf is the VolumeAttachment of a volume on a node, named as kube-controller-manager names it.
func (t *trial) attachmentOf(volume, node string) testbed.VolumeAttachment {
	va := t.attachment(volume, node)
	sum := sha256.Sum256([]byte(volume + virtualDriver + node))
	va.Name = "csi-" + hex.EncodeToString(sum[:])
	return va
}

// byHand is a second VolumeAttachment of a volume on a node, which somebody has made by hand.
func (t *trial) byHand(volume, node string) testbed.VolumeAttachment {
	va := t.attachment(volume, node)
	va.Name = "by-hand-" + va.Name
	return va
}

// attachments returns the VolumeAttachments as they are now. It may be called from any goroutine.
func (t *trial) attachments() []storagev1.VolumeAttachment {
	list, err := t.kube.StorageV1().VolumeAttachments().List(t.t.Context(), metav1.ListOptions{})
	if err != nil {
		t.fail("list VolumeAttachments: %v", err)
		return nil
	}
	return list.Items
}

// attachmentsOf returns the VolumeAttachments of a volume.
func (t *trial) attachmentsOf(volume string) []storagev1.VolumeAttachment {
	return slices.DeleteFunc(t.attachments(), func(va storagev1.VolumeAttachment) bool { return volumeOf(va) != volume })
}

func volumeOf(va storagev1.VolumeAttachment) string { return *va.Spec.Source.PersistentVolumeName }

// say adds a line to the trace. It may be called from any goroutine.
func (t *trial) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trace = append(t.trace, fmt.Sprintf("%12v ", time.Since(t.began))+fmt.Sprintf(format, args...))
}

// fail notes what is wrong. It may be called from any goroutine.
func (t *trial) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	t.say("WRONG: %s", text)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrong = append(t.wrong, text)
}

// report fails the test with all that was wrong, and with the trace.
func (t *trial) report() {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for _, volume := range t.volumes {
		for _, node := range t.nodes {
			names = append(names, t.attachmentOf(volume.name, node.name).Name, volume.name+"/"+node.name)
		}
	}
	readable := strings.NewReplacer(names...)
	for _, wrong := range t.wrong[:min(len(t.wrong), 20)] {
		t.t.Error(readable.Replace(wrong))
	}
	if t.t.Failed() || t.logs {
		t.t.Logf("trace:\n%s", readable.Replace(strings.Join(t.trace, "\n")))
	}
}

// guarded says whether a VolumeAttachment has the driver's finalizer.
func guarded(va storagev1.VolumeAttachment) bool {
	return slices.Contains(va.Finalizers, trialFinalizer)
}
