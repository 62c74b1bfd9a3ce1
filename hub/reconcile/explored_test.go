package reconcile

import (
	"slices"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/explore"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/race"
)

// exploredFrom is a world that begins in a state of another one. In it nothing breaks, and users do nothing more.
type exploredFrom struct {
	*volumeModel
	state *exploredWorld
}

func (m exploredFrom) Start() []*exploredWorld { return []*exploredWorld{m.state} }

// Each row is steps that an exploration has found. All that may follow without a fault is explored: in each of these states what
// is wanted must be within reach. "A makes REQUEST: EFFECT" is the request and its answer.
func TestExploredStepsLeadToWhatIsWanted(t *testing.T) {
	race.Skip(t, "TestExploreVolumes does the same concurrent work")
	for name, c := range map[string]struct {
		world string
		steps []string
	}{
		"detach that becomes due during the writes of an attach elsewhere goes first": {"move", []string{
			"user creates va va2",
			"A hears: va va2",
			"user deletes va va1",
			"A hears: va va1",
			"A makes va2: patch va va2: the API server does it",
		}},
		"attach whose last answer is lost ends although the node ID changes": {"node ID", []string{
			"user creates va va1",
			"A hears: va va1",
			"A makes va1: patch pv pv1: the API server does it",
			"A makes va1: patch va va1: the API server does it",
			"A makes va1: publish handle-pv1@id-n1: the driver does it",
			"A makes va1: patch va va1/status: the API server does it, and the answer is lost",
			"the driver registers n1 under another node ID",
			"A hears: csinode n1",
		}},
		"detach after a lost write of attached begins with the status": {"attachRequired while attaching", []string{
			"user creates va va1",
			"A hears: va va1",
			"A makes va1: patch pv pv1: the API server does it",
			"A makes va1: patch va va1: the API server does it",
			"A makes va1: publish handle-pv1@id-n1: the driver does it",
			"A makes va1: patch va va1/status: the API server does it, and the answer is lost",
			"attachRequired becomes false",
			"A hears: csidriver explored.example.com",
		}},
		"publish after a lost removal of the finalizer puts it back first": {"attachRequired", []string{
			"attachRequired becomes false",
			"A hears: csidriver explored.example.com",
			"A makes va1: read the Node n1: the API server does it",
			"A makes va1: patch va va1/status: the API server does it",
			"A makes va1: read the Node n1: the API server does it",
			"A makes va1: unpublish handle-pv1@id-n1: the driver does it",
			"A makes va1: patch va va1: the API server does it, and the answer is lost",
			"attachRequired becomes true",
			"A hears: csidriver explored.example.com",
		}},
		// The worker had read the new object before the deletion of the old one came in. Its attach then ran in the lane of
		// detaches, before which no detach goes.
		"attach of a recreated volume attachment waits for the detach elsewhere": {"move to and fro", []string{
			"user creates va va2",
			"A hears: va va2",
			"user deletes va va2",
			"A makes va2: patch va va2: the API server does it",
			"user creates va va2",
			"A makes va2: read pv pv1: the API server does it",
			"A makes va2: read va va2: the API server does it",
			"A hears: va va2 is gone",
			"A hears: va va2",
			"A makes va2: patch va va2: is lost",
			"A: va2 is due again",
			"user deletes va va1",
			"A hears: va va1",
			"A makes va2: read va va2: the API server does it",
			"A makes va2: patch va va2: the API server does it",
			"A makes va1: unpublish handle-pv1@id-n1: the driver does it",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			at := slices.IndexFunc(exploredConfigs, func(config exploredConfig) bool { return config.Name == c.world })
			m := newVolumeModel(t, exploredConfigs[at])
			var steps []string
			for _, step := range c.steps {
				if made, ok := strings.CutPrefix(step, "A makes "); ok {
					request := made[:strings.LastIndex(made, ": ")]
					steps = append(steps, "A: "+made, "A gets the answer to "+request)
					continue
				}
				steps = append(steps, step)
			}
			state, err := explore.Replay(m, steps)
			must(t, err)
			state = state.clone()
			state.users.faults, state.users.left = 0, [userSteps]int8{}
			report, err := explore.Run(t.Context(), exploredFrom{m, state}, explore.Options{})
			must(t, err)
			if !report.Complete() {
				t.Error(report)
			}
		})
	}
}
