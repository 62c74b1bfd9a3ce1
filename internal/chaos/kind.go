package chaos

import "time"

// Kind is a sort of fault.
type Kind string

// What is done to VolumeAttachments.
const (
	Recreated      Kind = "attachment recreated"       // deleted, and made again at once under its name
	DeletedEarly   Kind = "attachment deleted early"   // made and deleted before anybody has answered
	FinalizerTaken Kind = "attachment finalizer taken" // by somebody with kubectl
)

// What drivers do.
const (
	DriverCrash        Kind = "driver crash"
	DriverCapabilities Kind = "driver other capabilities" // it crashes and comes back with them
	DriverHang         Kind = "driver hang"
	DriverLate         Kind = "driver late answer" // the work is done, the caller sees DeadlineExceeded
	DriverError        Kind = "driver error"       // any gRPC code, before or after the work is done
	DriverSlow         Kind = "driver slow"
	DriverNotReady     Kind = "driver not ready"
	StorageLost        Kind = "storage lost attachment"
	StorageGained      Kind = "storage gained attachment"
)

// What becomes of hubs.
const (
	HubKill    Kind = "hub kill" // SIGKILL, and started again
	HubStop    Kind = "hub stop" // SIGTERM, and started again
	HubPause   Kind = "hub pause"
	HubDoubled Kind = "hub doubled" // one more for a while
)

// What hubs see of the API server.
const (
	APIStop        Kind = "api stop" // for everybody
	APISlow        Kind = "api slow"
	APISilent      Kind = "api silent" // nothing arrives, in either direction
	APIWatchesDrop Kind = "api watches drop"
	APIConflict    Kind = "api conflict"
	APIThrottle    Kind = "api throttle"
	APIError       Kind = "api error"
	APIAnswerLost  Kind = "api answer lost" // the write is done, the answer never arrives
)

// What becomes of objects and of drivers.yaml.
const (
	NodeGone       Kind = "node gone"
	CSINodeGone    Kind = "csinode gone"
	VolumeVanished Kind = "volume vanished" // with its finalizers taken
	VolumeReplaced Kind = "volume replaced" // deleted in the regular way, and made again
	SecretGone     Kind = "secret gone"

	ConfigRewritten Kind = "config rewritten"
	ConfigPaused    Kind = "config paused"
	ConfigBroken    Kind = "config broken"
	ConfigEmptied   Kind = "config emptied"
)

// scope is what a fault takes for itself: two faults of one scope and target are never at the
// same time.
type scope string

const (
	onPod       scope = "pod"
	onServer    scope = "server"    // of a driver: whether it is there
	onBehaviour scope = "behaviour" // of a driver: any number at once
	onLatency   scope = "latency"   // of a driver
	onReadiness scope = "readiness" // of a driver
	onProcess   scope = "process"   // of a hub
	onAPI       scope = "api"       // of a hub: any number at once
	onSilence   scope = "silence"   // of a hub's way to the API server
	onPlane     scope = "plane"
	onNode      scope = "node"
	onCSINode   scope = "csinode"
	onVolume    scope = "volume"
	onSecret    scope = "secret"
	onSettings  scope = "settings" // of a driver in drivers.yaml
	onConfig    scope = "config"   // the file
)

// shared scopes take any number of faults at once.
func (s scope) shared() bool { return s == onBehaviour || s == onAPI }

// when says in which stretches a kind may come.
type when int

const (
	always when = iota
	// hasty: there is one hub, and it does not end.
	hasty
	// hubsMayEnd: no VolumeAttachment goes without its finalizer.
	hubsMayEnd
)

// schedule is how a kind of fault comes.
type schedule struct {
	kind   Kind
	weight int // how often, beside the others
	scope  scope
	least  time.Duration // how long it lasts; 0: it has no end
	most   time.Duration
	when   when
}

// schedules are all kinds. A lease takes 3 s: what hubs suffer lasts for less and for more.
var schedules = []schedule{
	{Recreated, 10, onPod, 0, 0, always},
	{DeletedEarly, 8, onPod, 0, 0, hasty},
	{FinalizerTaken, 4, onPod, 0, 0, hasty},

	{DriverCrash, 6, onServer, 50 * time.Millisecond, 3 * time.Second, always},
	{DriverCapabilities, 2, onServer, time.Second, 4 * time.Second, always},
	{DriverHang, 5, onBehaviour, 200 * time.Millisecond, 4 * time.Second, always},
	{DriverLate, 6, onBehaviour, 1500 * time.Millisecond, 4 * time.Second, always},
	{DriverError, 16, onBehaviour, 0, 0, always},
	{DriverSlow, 4, onLatency, time.Second, 4 * time.Second, always},
	{DriverNotReady, 2, onReadiness, 500 * time.Millisecond, 3 * time.Second, always},
	{StorageLost, 6, onBehaviour, 0, 0, always},
	{StorageGained, 3, onBehaviour, 500 * time.Millisecond, 3 * time.Second, always},

	{HubKill, 12, onProcess, 50 * time.Millisecond, 4 * time.Second, hubsMayEnd},
	{HubStop, 8, onProcess, 50 * time.Millisecond, 3 * time.Second, hubsMayEnd},
	{HubDoubled, 6, onProcess, 2 * time.Second, 5 * time.Second, hubsMayEnd},
	{HubPause, 14, onProcess, 300 * time.Millisecond, 6 * time.Second, always},

	{APISlow, 4, onAPI, 500 * time.Millisecond, 3 * time.Second, always},
	{APISilent, 3, onSilence, 500 * time.Millisecond, 5 * time.Second, always},
	{APIWatchesDrop, 2, onAPI, 0, 0, always},
	{APIConflict, 5, onAPI, 300 * time.Millisecond, 2 * time.Second, always},
	{APIThrottle, 3, onAPI, 200 * time.Millisecond, time.Second, always},
	{APIError, 5, onAPI, 300 * time.Millisecond, 2 * time.Second, always},
	{APIAnswerLost, 4, onAPI, 300 * time.Millisecond, 2 * time.Second, always},

	{NodeGone, 3, onNode, 500 * time.Millisecond, 3 * time.Second, always},
	{CSINodeGone, 4, onCSINode, 300 * time.Millisecond, 3 * time.Second, always},
	{VolumeVanished, 4, onVolume, 300 * time.Millisecond, 3 * time.Second, always},
	{VolumeReplaced, 4, onPod, 0, 0, always},
	{SecretGone, 3, onSecret, 300 * time.Millisecond, 3 * time.Second, always},

	{ConfigRewritten, 4, onSettings, 0, 0, always},
	{ConfigPaused, 3, onSettings, 500 * time.Millisecond, 3 * time.Second, always},
	{ConfigBroken, 2, onConfig, 300 * time.Millisecond, 2 * time.Second, always},
	{ConfigEmptied, 2, onConfig, 300 * time.Millisecond, 2 * time.Second, always},
}

// Kinds returns all kinds of faults.
func Kinds() []Kind {
	kinds := []Kind{APIStop}
	for _, h := range schedules {
		kinds = append(kinds, h.kind)
	}
	return kinds
}
