package reconcile

import "testing"

// The worker had read the new object before the deletion of the old one came in. Its attach then ran in the lane of
// detaches, before which no detach goes.
func TestExploredAttachOfARecreatedVolumeAttachmentWaitsForTheDetachElsewhere(t *testing.T) {
	replayExplored(t, exploredConfigNamed(t, "move to and fro"),
		"user creates va va2",
		"A hears: va va2",
		"user deletes va va2",
		"A: va2: patch va va2: the API server does it",
		"A gets the answer to va2: patch va va2",
		"user creates va va2",
		"A: va2: read pv pv1: the API server does it",
		"A gets the answer to va2: read pv pv1",
		"A: va2: read va va2: the API server does it",
		"A gets the answer to va2: read va va2",
		"A hears: va va2 is gone",
		"A hears: va va2",
		"A: va2: patch va va2: is lost",
		"A gets the answer to va2: patch va va2",
		"A: va2 is due again",
		"user deletes va va1",
		"A hears: va va1",
		"A: va2: read va va2: the API server does it",
		"A gets the answer to va2: read va va2",
		"A: va2: patch va va2: the API server does it",
		"A gets the answer to va2: patch va va2",
		"A: va1: unpublish handle-pv1@id-n1: the driver does it",
		"A gets the answer to va1: unpublish handle-pv1@id-n1",
	)
}
