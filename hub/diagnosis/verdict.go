package diagnosis

// Verdict names a kind of Diagnosis, for programs: explain -o json has it. Names do not change.
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
	VolumeNotCSI       Verdict = "VolumeNotCSI"
	VolumeBeingDeleted Verdict = "VolumeBeingDeleted"
	AttachNotRequired  Verdict = "AttachNotRequired"
	// AttachRequiredWrong is a CSIDriver with attachRequired: false of a driver that attaches.
	AttachRequiredWrong Verdict = "AttachRequiredWrong"
	NotWanted           Verdict = "NotWanted"
	NotAskedYet         Verdict = "NotAskedYet"
	NodeMissing         Verdict = "NodeMissing"
	NodeNotReady        Verdict = "NodeNotReady"
	KubeletAttaches     Verdict = "KubeletAttaches"
	NodeWithoutCSI      Verdict = "NodeWithoutCSI"
	NodeWithoutDriver   Verdict = "NodeWithoutDriver"
	// NodeIDChanged is a CSINode with another node ID than the one that the volume was attached to.
	NodeIDChanged     Verdict = "NodeIDChanged"
	AttachedElsewhere Verdict = "AttachedElsewhere"
	WaitingForDetach  Verdict = "WaitingForDetach"
	// AttachedToNotReadyNode is AttachedElsewhere on a node that is not ready: nobody unmounts the volume there.
	AttachedToNotReadyNode Verdict = "AttachedToNotReadyNode"
	FinalizerOfAnother     Verdict = "FinalizerOfAnother"
	BeingDetached          Verdict = "BeingDetached"
	// Dangling: the volume is or may be attached without a VolumeAttachment, by a call of the hub or by the driver's list.
	Dangling Verdict = "Dangling"
	NodeFull Verdict = "NodeFull" // it can have no more volumes of the driver
)

// About who works for the driver.
const (
	DriverNotConfigured Verdict = "DriverNotConfigured"
	EndpointNotAllowed  Verdict = "EndpointNotAllowed"
	DriverConflict      Verdict = "DriverConflict"
	ConfigBroken        Verdict = "ConfigBroken"
	SocketMissing       Verdict = "SocketMissing"
	CannotConnect       Verdict = "CannotConnect"
	CertificateExpired  Verdict = "CertificateExpired" // of either side; or it is not valid yet
	CertificateName     Verdict = "CertificateName"    // the driver's side has a certificate for other names
	NameMismatch        Verdict = "NameMismatch"
	DriverNotReady      Verdict = "DriverNotReady"
	DriverPaused        Verdict = "DriverPaused"
	DriverObserved      Verdict = "DriverObserved"
	DriverDraining      Verdict = "DriverDraining"
	LeaseHeld           Verdict = "LeaseHeld"
	LeaseHolderGone     Verdict = "LeaseHolderGone" // the lease has not expired, and the Pod of its holder is gone
	LeaseExpired        Verdict = "LeaseExpired"
	LeaseFree           Verdict = "LeaseFree"
	LeaseMissing        Verdict = "LeaseMissing"
	APIServerNotReached Verdict = "APIServerNotReached"
	ForeignWriter       Verdict = "ForeignWriter"
	CapabilityMissing   Verdict = "CapabilityMissing"  // it was called before, and has no PUBLISH_UNPUBLISH_VOLUME
	DriverUnresponsive  Verdict = "DriverUnresponsive" // it answers no call
	DriverStarting      Verdict = "DriverStarting"     // it has not been connected yet
	DriverDisagrees     Verdict = "DriverDisagrees"    // in mode observe, another attacher had another result
	ChecklistOpen       Verdict = "ChecklistOpen"
)

// About the calls and the writes.
const (
	VolumeRecreated  Verdict = "VolumeRecreated" // by another one of the same name
	ObjectChanged    Verdict = "ObjectChanged"   // while it was worked on
	WriteForbidden   Verdict = "WriteForbidden"  // or a read
	WebhookFailed    Verdict = "WebhookFailed"   // the API server cannot call a webhook, and so refuses the write
	AdmissionDenied  Verdict = "AdmissionDenied" // a webhook or a ValidatingAdmissionPolicy refuses the write
	TooManyRequests  Verdict = "TooManyRequests" // API Priority and Fairness refuses requests
	SecretMissing    Verdict = "SecretMissing"
	SecretForbidden  Verdict = "SecretForbidden"
	SecretNotAllowed Verdict = "SecretNotAllowed" // drivers.yaml does not let the driver's volumes name it
	BackendError     Verdict = "BackendError"
	LastError        Verdict = "LastError"
	CallInFlight     Verdict = "CallInFlight"
	CallUnanswered   Verdict = "CallUnanswered" // for longer than is usual
	Queued           Verdict = "Queued"
	Retrying         Verdict = "Retrying"
	Stuck            Verdict = "Stuck"
	NoReasonKnown    Verdict = "NoReasonKnown"
	NothingToDo      Verdict = "NothingToDo"
	IsAttached       Verdict = "Attached"
)
