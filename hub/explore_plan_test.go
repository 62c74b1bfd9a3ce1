package hub

import (
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explore/snapshot"
)

// tablePlan makes keys of Tables. It leaves out what makes no difference to decisions, or none while the clock stands still:
// texts of errors, what is waited for, when things were, the pace of calls, and the order of delays, any of which may end next.
var tablePlan = snapshot.Must[volume.Table](append(tableRules,
	snapshot.Skip("volume.queue.delayed", "volume.Entry.index", "volume.Entry.link", "volume.laneLoad.running", "volume.laneLoad.waiting"),
	snapshot.Skip("volume.node.detached", "volume.Entry.detached"),
)...)

// seenPlan makes keys of what a worker may see in a Table: claims and publications.
var seenPlan = snapshot.Must[volume.Table](append(tableRules,
	snapshot.Skip("volume.Table.queue", "volume.Volume.entries"),
)...)

var tableRules = []snapshot.Rule{
	snapshot.Fresh("sync.Mutex", "volume.queue.wake"),
	snapshot.Share("volume.pauses", "*v1.SecretReference", "volume.Retries.Session", "volume.Retries.LastSession"),
	snapshot.Holds("list.Element.Value", &volume.Entry{}),
	snapshot.Zero("time.Time"),
	snapshot.Rank("volume.queue.steps", "volume.Entry.came", "volume.Entry.served", "volume.Entry.tried", "volume.Entry.refusedAt", "volume.fullNode.fresh"),
	snapshot.Skip("volume.Entry.since", "volume.Entry.began", "volume.Entry.due", "volume.queue.looked", "volume.laneLoad.pace"),
	snapshot.Skip("volume.Entry.failure", "volume.Entry.cause", "volume.Unowned.Error", "volume.Retries.Since", "volume.Retries.Session", "volume.Retries.AfterReconnect"),
	snapshot.Saturate(2, "volume.Entry.failures", "volume.Entry.repeats", "volume.Retries.Failures", "volume.Unowned.Failures", "volume.Unowned.refusals"),
	snapshot.Saturate(4, "volume.Claim.refusals"),
	snapshot.NilIsEmpty("volume.queue.moved", "volume.queue.full", "volume.Volume.unowned"),
}
