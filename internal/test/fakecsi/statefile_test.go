package fakecsi

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
)

// reopen is what a process does that starts after another one was killed: the
// earlier StateFile is not closed.
func reopen(t *testing.T, path string) *Backend {
	t.Helper()
	j, err := OpenStateFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return newBackend(t, Options{StateFile: j})
}

func TestStateSurvivesTheEndOfTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	b := reopen(t, path)
	publish(t.Context(), b, "shared", "n1", rwx)
	publish(t.Context(), b, "shared", "n2", rwx)
	publish(t.Context(), b, "single", "n1", rwo)
	publish(t.Context(), b, "detached", "n1", rwo)
	unpublish(t.Context(), b, "detached", "n1")
	turn(t, b, Knobs{LoseAttachments: []VolumeNode{{Volume: "shared", Node: "n1"}}, GainVolumes: []string{"idle", "lost"}})
	turn(t, b, Knobs{LoseVolumes: []string{"lost"}})
	want := b.Books()

	for range 2 { // the second time from the file that the first one has rewritten
		b = reopen(t, path)
		got := b.Books()
		if diff := cmp.Diff(want.Attached, got.Attached); diff != "" {
			t.Errorf("attached (-before +after):\n%s", diff)
		}
		if got.Volumes != want.Volumes {
			t.Errorf("%d volumes, before %d", got.Volumes, want.Volumes)
		}
	}
	if got := publish(t.Context(), b, "single", "n2", rwo); got != codes.FailedPrecondition {
		t.Errorf("publish to a second node got %s", got)
	}
	if got := publish(t.Context(), b, "single", "n1", rwo); got != codes.OK {
		t.Errorf("publish again got %s", got)
	}
}

func TestATornLastLineIsDroppedWhereverItTears(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	b := reopen(t, path)
	publish(t.Context(), b, "first", "n1", rwo)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	publish(t.Context(), b, "second", "n1", rwo)
	both, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(whole); cut < len(both); cut++ {
		torn := filepath.Join(t.TempDir(), fmt.Sprint("state", cut))
		if err := os.WriteFile(torn, both[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		b := reopen(t, torn)
		if diff := cmp.Diff(map[string][]string{"first": {"n1"}}, attached(b)); diff != "" {
			t.Fatalf("cut at %d (-want +got):\n%s", cut, diff)
		}
		publish(t.Context(), b, "third", "n2", rwo)
		if diff := cmp.Diff(map[string][]string{"first": {"n1"}, "third": {"n2"}}, attached(reopen(t, torn))); diff != "" {
			t.Fatalf("cut at %d, after the next change (-want +got):\n%s", cut, diff)
		}
	}
}

func TestABrokenStateFileIsAnErrorThatSaysWhere(t *testing.T) {
	for _, line := range []string{"nonsense", `{"op":"fly","volume":"v"}`, `{"op":"attach","volume":"v","node":"n"}`} {
		path := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(path, []byte(`{"op":"create","volume":"v"}`+"\n"+line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenStateFile(path); err == nil || !strings.Contains(err.Error(), path+":2: ") {
			t.Errorf("line %s: got %v", line, err)
		}
	}
}

func TestEveryAnsweredCallIsInTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	b := reopen(t, path)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			v := fmt.Sprint("v", i)
			if got := publish(t.Context(), b, v, "n1", rwo); got != codes.OK {
				t.Errorf("publish of %s got %s", v, got)
			}
			data, err := os.ReadFile(path)
			if err != nil || !bytes.Contains(data, []byte(`"volume":"`+v+`","node":"n1"`)) {
				t.Errorf("%s was answered and is not in the file: %v", v, err)
			}
		})
	}
	wg.Wait()
}

func TestTheStateFileDoesNotGrowWithTheCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	b := reopen(t, path)
	publish(t.Context(), b, "stays", "n1", rwo)
	for range 3000 {
		publish(t.Context(), b, "v", "n1", rwo)
		unpublish(t.Context(), b, "v", "n1")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(data, []byte("\n")); lines > 2000 {
		t.Errorf("%d lines for two volumes", lines)
	}
	if diff := cmp.Diff(map[string][]string{"stays": {"n1"}}, attached(reopen(t, path))); diff != "" {
		t.Errorf("attached (-want +got):\n%s", diff)
	}
}

func TestACallThatCannotBeMadeDurableFails(t *testing.T) {
	j, err := OpenStateFile(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	b := newBackend(t, Options{StateFile: j})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if got := publish(t.Context(), b, "v", "n1", rwo); got != codes.Internal {
		t.Errorf("got %s", got)
	}
}
