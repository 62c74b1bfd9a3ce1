package explain

// Result is how far the volumes have come.
type Result string

const (
	// Attached: all that was asked for is attached, or needs not be.
	Attached Result = "attached"
	// Waiting: something is not as it should be yet.
	Waiting Result = "waiting"
	// NotFound: there is no such object.
	NotFound Result = "notFound"
	// NotKnown: what it takes to answer could not be read. Report.Unknown says what.
	NotKnown Result = "unknown"
)

// ExitCode is that of the command.
func (r Result) ExitCode() int {
	switch r {
	case Attached:
		return 0
	case NotFound:
		return 2
	case NotKnown:
		return 3
	}
	return 1
}

// Report is the answer to a question.
type Report struct {
	Question Question `json:"question"`
	Result   Result   `json:"result"`
	// Stop says why there is nothing to walk along: there is no such object, or no volume.
	Stop    *Finding       `json:"stop,omitempty"`
	Volumes []VolumeReport `json:"volumes"`
	// Unknown says what could not be asked, and so is not known.
	Unknown []string `json:"unknown,omitempty"`
}

// VolumeReport is the answer for one volume on one node.
type VolumeReport struct {
	Title  string    `json:"title"`
	Result Result    `json:"result"`
	Path   []string  `json:"path"`            // what is in order, in the order of the walk
	Stop   *Finding  `json:"stop,omitempty"`  // where it stops; only if it is Waiting
	Notes  []Finding `json:"notes,omitempty"` // what else was found
}

// Finding is one thing that is not as it should be, or that one should know.
type Finding struct {
	Verdict Verdict `json:"verdict"`
	Object  string  `json:"object"`         // which it is about
	Fact    string  `json:"fact"`           // what was found
	Next    string  `json:"next,omitempty"` // what to do
}

// Verdict names a kind of Finding, for programs.
type Verdict string

// About the objects of Kubernetes.
const (
	ObjectNotFound     Verdict = "ObjectNotFound"
	NothingToAttach    Verdict = "NothingToAttach"
	PodNotScheduled    Verdict = "PodNotScheduled"
	PodFinished        Verdict = "PodFinished"
	ClaimMissing       Verdict = "ClaimMissing"
	ClaimNotBound      Verdict = "ClaimNotBound"
	VolumeMissing      Verdict = "VolumeMissing"
	VolumeOfAnother    Verdict = "VolumeOfAnother"
	VolumeNotCSI       Verdict = "VolumeNotCSI"
	VolumeBeingDeleted Verdict = "VolumeBeingDeleted"
	AttachNotRequired  Verdict = "AttachNotRequired"
	NotWanted          Verdict = "NotWanted"
	NotAskedYet        Verdict = "NotAskedYet"
	NodeMissing        Verdict = "NodeMissing"
	NodeNotReady       Verdict = "NodeNotReady"
	KubeletAttaches    Verdict = "KubeletAttaches"
	NodeWithoutCSI     Verdict = "NodeWithoutCSI"
	NodeWithoutDriver  Verdict = "NodeWithoutDriver"
	AttachedElsewhere  Verdict = "AttachedElsewhere"
	WaitingForDetach   Verdict = "WaitingForDetach"
	FinalizerOfAnother Verdict = "FinalizerOfAnother"
	BeingDetached      Verdict = "BeingDetached"
	LeftAttached       Verdict = "LeftAttached"
)

// About who works for the driver.
const (
	DriverNotConfigured Verdict = "DriverNotConfigured"
	EndpointNotAllowed  Verdict = "EndpointNotAllowed"
	DriverConflict      Verdict = "DriverConflict"
	ConfigBroken        Verdict = "ConfigBroken"
	SocketMissing       Verdict = "SocketMissing"
	CannotConnect       Verdict = "CannotConnect"
	NameMismatch        Verdict = "NameMismatch"
	DriverNotReady      Verdict = "DriverNotReady"
	DriverPaused        Verdict = "DriverPaused"
	DriverObserved      Verdict = "DriverObserved"
	DriverDraining      Verdict = "DriverDraining"
	LeaseHeld           Verdict = "LeaseHeld"
	LeaseExpired        Verdict = "LeaseExpired"
	LeaseFree           Verdict = "LeaseFree"
	LeaseMissing        Verdict = "LeaseMissing"
	ForeignWriter       Verdict = "ForeignWriter"
)

// About the calls.
const (
	SecretMissing   Verdict = "SecretMissing"
	SecretForbidden Verdict = "SecretForbidden"
	BackendError    Verdict = "BackendError"
	LastError       Verdict = "LastError"
	CallInFlight    Verdict = "CallInFlight"
	Queued          Verdict = "Queued"
	Retrying        Verdict = "Retrying"
	Stuck           Verdict = "Stuck"
	NoReasonKnown   Verdict = "NoReasonKnown"
)
