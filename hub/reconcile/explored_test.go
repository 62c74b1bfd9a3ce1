package reconcile

import (
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/explore"
)

// exploredFrom is a world that begins in a state of another one. In it nothing breaks, and users do nothing more.
type exploredFrom struct {
	*volumeModel
	state *exploredWorld
}

func (m exploredFrom) Start() []*exploredWorld { return []*exploredWorld{m.state} }

// replayExplored replays steps that an exploration has found, and explores all that may follow without a fault: in each of
// these states what is wanted must be within reach.
func replayExplored(t *testing.T, c exploredConfig, steps ...string) {
	t.Helper()
	m := newVolumeModel(t, c)
	state, err := explore.Replay(m, steps)
	if err != nil {
		t.Fatal(err)
	}
	state = state.clone()
	state.users.faults, state.users.left = 0, [userSteps]int8{}
	report, err := explore.Run(t.Context(), exploredFrom{m, state}, explore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !report.Complete() {
		t.Error(report)
	}
}

func exploredConfigNamed(t *testing.T, name string) exploredConfig {
	t.Helper()
	for _, c := range exploredConfigs {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no world %q", name)
	return exploredConfig{}
}

func TestExploredDetachThatBecomesDueDuringTheWritesOfAnAttachElsewhereGoesFirst(t *testing.T) {
	replayExplored(t, exploredConfigNamed(t, "move"),
		"user creates va va2",
		"A hears: va va2",
		"user deletes va va1",
		"A hears: va va1",
		"A: va2: patch va va2: the API server does it",
		"A gets the answer to va2: patch va va2",
	)
}

func TestExploredAttachWhoseLastAnswerIsLostEndsAlthoughTheNodeIDChanges(t *testing.T) {
	replayExplored(t, exploredConfigNamed(t, "node ID"),
		"user creates va va1",
		"A hears: va va1",
		"A: va1: patch pv pv1: the API server does it",
		"A gets the answer to va1: patch pv pv1",
		"A: va1: patch va va1: the API server does it",
		"A gets the answer to va1: patch va va1",
		"A: va1: publish handle-pv1@id-n1: the driver does it",
		"A gets the answer to va1: publish handle-pv1@id-n1",
		"A: va1: patch va va1/status: the API server does it, and the answer is lost",
		"A gets the answer to va1: patch va va1/status",
		"the driver registers n1 under another node ID",
		"A hears: csinode n1",
	)
}

func TestExploredDetachAfterALostWriteOfAttachedBeginsWithTheStatus(t *testing.T) {
	replayExplored(t, exploredConfigNamed(t, "attachRequired while attaching"),
		"user creates va va1",
		"A hears: va va1",
		"A: va1: patch pv pv1: the API server does it",
		"A gets the answer to va1: patch pv pv1",
		"A: va1: patch va va1: the API server does it",
		"A gets the answer to va1: patch va va1",
		"A: va1: publish handle-pv1@id-n1: the driver does it",
		"A gets the answer to va1: publish handle-pv1@id-n1",
		"A: va1: patch va va1/status: the API server does it, and the answer is lost",
		"A gets the answer to va1: patch va va1/status",
		"attachRequired becomes false",
		"A hears: csidriver explored.example.com",
	)
}

func TestExploredPublishAfterALostRemovalOfTheFinalizerPutsItBackFirst(t *testing.T) {
	replayExplored(t, exploredConfigNamed(t, "attachRequired"),
		"attachRequired becomes false",
		"A hears: csidriver explored.example.com",
		"A: va1: read the Node n1: the API server does it",
		"A gets the answer to va1: read the Node n1",
		"A: va1: patch va va1/status: the API server does it",
		"A gets the answer to va1: patch va va1/status",
		"A: va1: read the Node n1: the API server does it",
		"A gets the answer to va1: read the Node n1",
		"A: va1: unpublish handle-pv1@id-n1: the driver does it",
		"A gets the answer to va1: unpublish handle-pv1@id-n1",
		"A: va1: patch va va1: the API server does it, and the answer is lost",
		"A gets the answer to va1: patch va va1",
		"attachRequired becomes true",
		"A hears: csidriver explored.example.com",
	)
}
