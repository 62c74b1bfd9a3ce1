package reconcile

// Breaks says what may break.
type Breaks struct{ Crashes, LostAnswers, DriverFails, Hangs, Pauses, Lists bool }

type exploredAttachment struct{ name, volume, node string }

var (
	oneAttachment        = []exploredAttachment{{"va1", "pv1", "n1"}}
	twoNodes             = []exploredAttachment{{"va1", "pv1", "n1"}, {"va2", "pv1", "n2"}}
	twoVolumes           = []exploredAttachment{{"va1", "pv1", "n1"}, {"va2", "pv2", "n1"}}
	twoVolumesAtTwoNodes = []exploredAttachment{{"va1", "pv1", "n1"}, {"va2", "pv2", "n2"}}
	everything           = Breaks{Crashes: true, LostAnswers: true, DriverFails: true, Hangs: true, Lists: true}
	// Only the memory of the hub knows a volume whose finalizer was stripped, or that is at a former node ID: a crash loses
	// it, and the driver's list finds it (hub/volume/doc.go, Listings). At the end of a term hub/reconcile/drain.go detaches it.
	noCrash  = Breaks{LostAnswers: true, DriverFails: true, Hangs: true, Lists: true}
	takeover = Breaks{Crashes: true, Pauses: true}
	anything = Breaks{Crashes: true, LostAnswers: true, DriverFails: true, Hangs: true, Pauses: true, Lists: true}
)

// exploredConfigs are the worlds. Those that complete come first, by size: they leave their time to those that are larger.
var exploredConfigs = []exploredConfig{
	{Name: "strip and delete the PersistentVolume", Replicas: 1, Attachments: oneAttachment, Attached: true, Users: [userSteps]int8{userDeletes: 1, userStrips: 1, userDeletesVolume: 1}},
	{Name: "strip in use", Replicas: 1, Attachments: oneAttachment, Attached: true, Used: true, Users: [userSteps]int8{userCreates: 1, userDeletes: 1, userStrips: 1, userStopsUsing: 1}},
	{Name: "attachRequired in use", Replicas: 1, Attachments: oneAttachment, Attached: true, Used: true, Users: [userSteps]int8{userChangesRequired: 2, userStopsUsing: 1}},
	{Name: "attachRequired", Replicas: 1, Attachments: oneAttachment, Attached: true, Users: [userSteps]int8{userChangesRequired: 2}, Faults: 1, Breaks: everything},
	{Name: "attachRequired while attaching", Replicas: 1, Attachments: oneAttachment, Users: [userSteps]int8{userCreates: 1, userChangesRequired: 1}, Faults: 1, Breaks: everything},
	{Name: "delete the PersistentVolume", Replicas: 1, Attachments: oneAttachment, Attached: true, Users: [userSteps]int8{userDeletes: 1, userDeletesVolume: 1}, Faults: 1, Breaks: everything},
	{Name: "create again", Replicas: 1, Attachments: oneAttachment, Attached: true, Users: [userSteps]int8{userCreates: 1, userDeletes: 1}, Faults: 1, Breaks: everything},
	{Name: "strip", Replicas: 1, Attachments: oneAttachment, Attached: true, Users: [userSteps]int8{userDeletes: 1, userStrips: 1}, Faults: 1, Breaks: noCrash},
	{Name: "detach", Replicas: 1, Attachments: oneAttachment, Attached: true, Users: [userSteps]int8{userDeletes: 1}, Faults: 2, Breaks: everything},
	{Name: "strip and create again", Replicas: 1, Attachments: oneAttachment, Attached: true, Users: [userSteps]int8{userCreates: 1, userDeletes: 1, userStrips: 1}, Faults: 1, Breaks: Breaks{Lists: true}},
	{Name: "create again while attaching", Replicas: 1, Attachments: oneAttachment, Users: [userSteps]int8{userCreates: 2, userDeletes: 1}},
	{Name: "takeover while detaching", Replicas: 2, Attachments: oneAttachment, Attached: true, Users: [userSteps]int8{userDeletes: 1}, Faults: 1, Breaks: takeover},
	{Name: "delete the PersistentVolume while attaching", Replicas: 1, Attachments: oneAttachment, Users: [userSteps]int8{userCreates: 1, userDeletes: 1, userDeletesVolume: 1}},
	{Name: "attach", Replicas: 1, Attachments: oneAttachment, Users: [userSteps]int8{userCreates: 1}, Faults: 2, Breaks: everything},
	{Name: "takeover and strip", Replicas: 2, Attachments: oneAttachment, Attached: true, Users: [userSteps]int8{userDeletes: 1, userStrips: 1}, Faults: 1, Breaks: Breaks{Pauses: true}},
	{Name: "attach and delete", Replicas: 1, Attachments: oneAttachment, Users: [userSteps]int8{userCreates: 1, userDeletes: 1}, Faults: 1, Breaks: everything},
	{Name: "strip and move", Replicas: 1, Attachments: twoNodes, Attached: true, Users: [userSteps]int8{userCreates: 1, userDeletes: 1, userStrips: 1}},
	{Name: "node ID of an attached volume", Replicas: 1, Attachments: oneAttachment, Attached: true, Users: [userSteps]int8{userDeletes: 1, userChangesID: 1}, Faults: 2, Breaks: noCrash},
	{Name: "move", Replicas: 1, Attachments: twoNodes, Attached: true, Users: [userSteps]int8{userCreates: 1, userDeletes: 1}, Faults: 1, Breaks: everything},
	{Name: "node ID", Replicas: 1, Attachments: oneAttachment, Users: [userSteps]int8{userCreates: 1, userDeletes: 1, userChangesID: 1}, Faults: 1, Breaks: Breaks{LostAnswers: true}},
	{Name: "attach and delete, two faults", Replicas: 1, Attachments: oneAttachment, Users: [userSteps]int8{userCreates: 1, userDeletes: 1}, Faults: 2, Breaks: everything},
	{Name: "takeover while attaching", Replicas: 2, Attachments: oneAttachment, Users: [userSteps]int8{userCreates: 1}, Faults: 1, Breaks: takeover},
	// The worlds from here on are too large to complete in ten minutes.
	{Name: "multi-node volume", Replicas: 1, Shared: true, Attachments: twoNodes, Attached: true, Users: [userSteps]int8{userCreates: 1, userDeletes: 1}, Faults: 1, Breaks: everything},
	{Name: "two volumes", Replicas: 1, Attachments: twoVolumes, Attached: true, Users: [userSteps]int8{userCreates: 1, userDeletes: 1}, Faults: 1, Breaks: Breaks{Crashes: true, LostAnswers: true}},
	{Name: "takeover while moving", Replicas: 2, Attachments: twoNodes, Attached: true, Users: [userSteps]int8{userCreates: 1, userDeletes: 1}, Faults: 1, Breaks: takeover},
	{Name: "takeover and delete the PersistentVolume", Replicas: 2, Attachments: oneAttachment, Users: [userSteps]int8{userCreates: 1, userDeletesVolume: 1}, Faults: 1, Breaks: takeover},
	{Name: "move to and fro", Replicas: 1, Attachments: twoNodes, Attached: true, Users: [userSteps]int8{userCreates: 2, userDeletes: 2}, Faults: 1, Breaks: everything},
	{Name: "takeover while attaching and detaching", Replicas: 2, Attachments: oneAttachment, Users: [userSteps]int8{userCreates: 1, userDeletes: 1}, Faults: 2, Breaks: anything},
	{Name: "takeover of two volumes at two nodes", Replicas: 2, Attachments: twoVolumesAtTwoNodes, Attached: true, Users: [userSteps]int8{userCreates: 1, userDeletes: 1}, Faults: 1, Breaks: anything},
}
