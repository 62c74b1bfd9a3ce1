package explain_test

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// Each cure is a real breakage: a real API server, a real process of the hub, a real driver on a socket. `explain` has to
// name the one cause, and the commands that it prints, run by a shell with kubectl and csi-attach-hub, have to cure it.
//
// To add cures: write a file cures_GROUP_test.go with a variable of type []cure and its functions, and name the variable
// in allCures. Each cure runs in a scene of its own (cures_scene_test.go), in parallel with the others. In its order:
//
//	prepare   changes the scene before the hub starts: s.entry, objects (the driver, node and CSINode are there)
//	break     breaks something in the running scene
//	ask       makes the volume and returns what explain is asked about; by default, a VolumeAttachment
//	verdict   is that of the stop; explain is asked until it comes to it
//	fill      has the values for the words in capitals in the commands
//	cured     blocks until the cure has worked; by default, until the volume is attached. Then explain must say that all
//	          is well.
type cure struct {
	name    string // the breakage
	prepare func(*cureScene)
	breaks  func(*cureScene)
	ask     func(*cureScene) (question string)
	verdict diagnosis.Verdict
	object  string            // of the stop, if it matters; {name} stands for the name of the scene
	words   []string          // which the fact has to have; {name} as in object
	fill    map[string]string // {name} as in object
	cured   func(*cureScene)
	// well is the question about which all must be well at the end; by default, that of ask. {name} as in object.
	well string
	// controllers: the scene has kube-controller-manager with the attach-detach controller and the Pod garbage collector.
	controllers bool
}

// allCures are the cures of all groups.
func allCures() []cure {
	return slices.Concat(objectCures, storageCures)
}

func TestMain(m *testing.M) {
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// A word in capitals is to be filled in by the reader.
var toFill = regexp.MustCompile(`\b[A-Z][A-Z_]+\b`)

func TestExplainNamesTheCauseAndItsCommandsCureIt(t *testing.T) {
	controllers := sync.OnceValue(func() *testbed.ControlPlane { // of all rows that need it
		plane := testbed.OwnControlPlane(t, testbed.ControlPlaneOptions{})
		manager, err := plane.StartControllerManager(t.Context(), filepath.Join(plane.Dir(), "kube-controller-manager.log"), "--controllers=pod-garbage-collector-controller,persistentvolume-binder-controller")
		if err != nil {
			t.Fatal(err)
		}
		testbed.KillAtEnd(t, manager)
		return plane
	})
	for _, c := range allCures() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var plane *testbed.ControlPlane
			if c.controllers {
				plane = controllers()
			}
			s := newCureScene(t, c.name, plane)
			named := func(text string) string { return strings.ReplaceAll(text, "{name}", s.name) }
			if c.prepare != nil {
				c.prepare(s)
			}
			s.startHub()
			if c.breaks != nil {
				c.breaks(s)
			}
			ask := c.ask
			if ask == nil {
				ask = (*cureScene).attach
			}
			question := ask(s)
			stop, text := s.explainedUntil(question, c.verdict)
			if want := named(c.object); want != "" && stop.Object != want {
				t.Errorf("the cause is about %s, want %s", stop.Object, want)
			}
			for _, word := range c.words {
				if !strings.Contains(stop.Text(time.Now()), named(word)) {
					t.Errorf("the fact %q lacks %q", stop.Text(time.Now()), named(word))
				}
			}
			script := strings.Join(stop.Commands, "\n")
			for _, line := range stop.Commands {
				if !strings.Contains(text, "\n            "+line+"\n") {
					t.Errorf("the text has no line with the command %s:\n%s", line, text)
				}
			}
			for word, value := range c.fill {
				script = regexp.MustCompile(`\b`+word+`\b`).ReplaceAllLiteralString(script, named(value))
			}
			if words := toFill.FindAllString(script, -1); len(words) > 0 {
				t.Fatalf("the row fills in no value for %q in\n%s", words, script)
			}
			t.Logf("%s: %s\n%s", stop.Object, stop.Text(time.Now()), script)
			s.shell(script)
			if c.cured != nil {
				c.cured(s)
			} else {
				s.waitAttached(question)
			}
			s.allWell(named(cmp.Or(c.well, question)))
		})
	}
}

// stopOf returns the stop of a report, nil if there is none.
func stopOf(r explain.Report) *diagnosis.Diagnosis {
	if r.Subject != nil && len(r.Subject.Reasons) > 0 {
		return &r.Subject.Reasons[0].Diagnosis
	}
	for _, v := range r.Volumes {
		if v.Stop != nil {
			return v.Stop
		}
	}
	return r.Stop
}
