package torture

import "time"

// Kind is a sort of fault.
type Kind string

// Faults of VolumeAttachments.
const (
	Recreated      Kind = "attachment recreated"       // deleted, and made again at once under the same name
	DeletedEarly   Kind = "attachment deleted early"   // made, and deleted before an attacher has answered
	FinalizerTaken Kind = "attachment finalizer taken" // as by a user with kubectl
)

// Faults of drivers.
const (
	DriverCrash        Kind = "driver crash"
	DriverCapabilities Kind = "driver other capabilities" // a crash and a start with them
	DriverHang         Kind = "driver hang"
	DriverLate         Kind = "driver late answer" // the storage changes, the caller sees DeadlineExceeded
	DriverError        Kind = "driver error"       // any gRPC code, before or after the storage changes
	DriverSlow         Kind = "driver slow"
	DriverNotReady     Kind = "driver not ready"
	DriverHostile      Kind = "driver hostile" // its answers are as large as the hub takes them, or larger
	StorageLost        Kind = "storage lost attachment"
	StorageGained      Kind = "storage gained attachment"
)

// Faults of hub processes.
const (
	HubKill    Kind = "hub kill" // SIGKILL, and a new start
	HubStop    Kind = "hub stop" // SIGTERM, and a new start
	HubPause   Kind = "hub pause"
	HubDoubled Kind = "hub doubled" // one more process for a while

	TakeoverPaused Kind = "takeover while paused"    // the leases run out, and the hub is paused with calls in flight
	TakeoverStale  Kind = "takeover with old caches" // the next leader does not see the last changes
)

// Faults of the API server, as one hub sees them.
const (
	APIStop        Kind = "api stop" // for all clients
	APISlow        Kind = "api slow"
	APISilent      Kind = "api silent" // nothing passes, in either direction
	APIWatchesDrop Kind = "api watches drop"
	APIConflict    Kind = "api conflict"
	APIThrottle    Kind = "api throttle"
	APIError       Kind = "api error"
	APILeases      Kind = "api leases"      // requests for leases fail, everything else passes
	APIAnswerLost  Kind = "api answer lost" // the write takes effect, its answer is lost
)

// Faults of objects and of drivers.yaml.
const (
	NodeGone       Kind = "node gone"
	CSINodeGone    Kind = "csinode gone"
	VolumeVanished Kind = "volume vanished" // its finalizers are removed
	VolumeReplaced Kind = "volume replaced" // deleted while its finalizers hold it, and made again
	SecretGone     Kind = "secret gone"

	ConfigRewritten Kind = "config rewritten"
	ConfigPaused    Kind = "config paused"
	ConfigBroken    Kind = "config broken"
	ConfigEmptied   Kind = "config emptied"
)

// scope is the part of a target that a fault hits. Two faults of one scope and target never overlap,
// unless the scope is shared.
type scope string

const (
	onPod       scope = "pod"
	onServer    scope = "server"    // of a driver: whether it runs
	onBehaviour scope = "behaviour" // of a driver; shared
	onLatency   scope = "latency"   // of a driver
	onReadiness scope = "readiness" // of a driver
	onAnswers   scope = "answers"   // of a driver
	onProcess   scope = "process"   // of a hub
	onTakeover  scope = "takeover"  // of the hub that leads most drivers
	onAPI       scope = "api"       // of a hub; shared
	onSilence   scope = "silence"   // of a hub's way to the API server
	onPlane     scope = "plane"
	onNode      scope = "node"
	onCSINode   scope = "csinode"
	onVolume    scope = "volume"
	onSecret    scope = "secret"
	onSettings  scope = "settings" // of a driver in drivers.yaml
	onConfig    scope = "config"   // the file
)

// shared reports whether faults of one target may overlap.
func (s scope) shared() bool { return s == onBehaviour || s == onAPI }

// when restricts a kind to some stretches.
type when int

const (
	always when = iota
	// hasty stretches have one hub, which does not end.
	hasty
	// hubsMayEnd: stretches in which no VolumeAttachment goes without its finalizer.
	hubsMayEnd
)

// schedule says how often a kind of fault comes, and for how long.
type schedule struct {
	kind   Kind
	weight int // relative frequency
	scope  scope
	least  time.Duration // shortest length; 0: the fault is over at once
	most   time.Duration // longest length
	when   when
}

// schedules are those of all kinds but APIStop and the takeovers. A lease lasts 3 s: faults of hubs last less and more.
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
	{DriverHostile, 3, onAnswers, time.Second, 4 * time.Second, always},
	{StorageLost, 6, onBehaviour, 0, 0, always},
	{StorageGained, 3, onBehaviour, 500 * time.Millisecond, 3 * time.Second, always},

	{HubKill, 12, onProcess, 50 * time.Millisecond, 4 * time.Second, hubsMayEnd},
	{HubStop, 10, onProcess, 50 * time.Millisecond, 3 * time.Second, hubsMayEnd},
	{HubDoubled, 10, onProcess, 2 * time.Second, 5 * time.Second, hubsMayEnd},
	{HubPause, 14, onProcess, 300 * time.Millisecond, 6 * time.Second, always},

	{APISlow, 4, onAPI, 500 * time.Millisecond, 3 * time.Second, always},
	{APISilent, 4, onSilence, 500 * time.Millisecond, 5 * time.Second, always},
	{APIWatchesDrop, 2, onAPI, 0, 0, always},
	{APIConflict, 5, onAPI, 300 * time.Millisecond, 2 * time.Second, always},
	{APIThrottle, 3, onAPI, 200 * time.Millisecond, time.Second, always},
	{APIError, 5, onAPI, 300 * time.Millisecond, 2 * time.Second, always},
	{APILeases, 3, onAPI, 500 * time.Millisecond, 4 * time.Second, always},
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
	kinds := []Kind{APIStop, TakeoverPaused, TakeoverStale}
	for _, h := range schedules {
		kinds = append(kinds, h.kind)
	}
	return kinds
}
