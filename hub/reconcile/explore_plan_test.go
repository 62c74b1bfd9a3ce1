package reconcile

import (
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/explore/snapshot"
)

// tablePlan makes keys of Tables and their Queues. It leaves out what makes no difference to decisions, or none while the clock
// stands still: texts of errors, when things were, the pace of calls, and the order of delays, any of which may end next.
var tablePlan = snapshot.Must[volume.Table](append(tableRules,
	snapshot.Skip("queue.term.alarms", "queue.laneLoad.running", "queue.laneLoad.waiting"),
	snapshot.Skip("queue.node.detached", "queue.Item.detached"),
	snapshot.Rank("queue.term.steps", "queue.Item.came", "queue.Item.served", "queue.Item.tried", "queue.Item.refusedAt"),
	snapshot.Skip("queue.Progress.Asked", "queue.Progress.Due", "queue.Item.began", "queue.term.looked", "queue.laneLoad.pace"),
	snapshot.Skip("queue.Progress.Error", "queue.Progress.Cause", "queue.Retries.Since", "queue.Retries.Session", "queue.Retries.AfterReconnect"),
	snapshot.Saturate(2, "queue.Progress.Tries", "queue.Item.repeats"),
)...)

// seenPlan makes keys of what a worker may see in a Table: Attachments and publications.
var seenPlan = snapshot.Must[volume.Table](append(tableRules, snapshot.Skip("volume.Table.Queue"))...)

var tableRules = []snapshot.Rule{
	snapshot.Skip("sync.Mutex", "queue.term.wake"),
	snapshot.Share("*v1.SecretReference", "queue.Limits.Pause", "queue.Retries.Session", "queue.Retries.LastSession", "queue.Queue.beliefs"),
	snapshot.Zero("time.Time"),
	snapshot.Skip("volume.Dangling.Error"),
	snapshot.Saturate(2, "volume.Dangling.Failures", "volume.Dangling.refusals"),
	snapshot.Saturate(4, "volume.Attachment.refusals"),
}
