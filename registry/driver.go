package registry

import (
	"cmp"
	"math"
	"strings"
	"time"
)

// Driver is a CSI driver that should be served. It is a value: two Drivers are
// equal (==) if they are to be served in the same way and were learned at the
// same place. Source moves with each line above it: to see whether a driver is to
// be served differently, compare without it.
type Driver struct {
	Name     string   // CSI driver name = spec.attacher of its VolumeAttachments
	Endpoint Endpoint // where its controller listens
	TLS      TLS      // how the connection is secured; zero for none
	Settings
	Source string // where it was learned, for people: "drivers.yaml:14"
	// Listed are the Secrets in the lists of all drivers (Settings.Secrets), for CheckSecret.
	Listed SecretPatterns
	// WindDown: serve the driver only while something of it is attached, and do not contact
	// it otherwise. attachRequired of its CSIDriver object is false, or that object was
	// deleted.
	WindDown bool
}

// Settings is how a driver is to be served.
type Settings struct {
	Mode          Mode          // whether it is served, watched only, or left alone
	Timeout       time.Duration // of one ControllerPublish or ControllerUnpublish call; positive
	Workers       int           // calls in flight at once; at least 1
	Retry         Retry         // how long a failed call waits for its next try
	MaxPerNode    int           // calls in flight at once for one node; 0 means no limit
	StuckAfter    time.Duration // without success for so long, a VolumeAttachment is reported stuck; positive
	Drift         Drift         // check that the storage system agrees with Kubernetes
	DefaultFSType string        // file system of volumes whose PersistentVolume names none; may be ""
	Probe         Probe         // health check of the driver
	KubeAPI       KubeAPI       // its budget of writes to the Kubernetes API
	Lease         Lease         // held by the process that serves it, as far as it is set; see LeaseOf
	// ParallelMultiNode lets calls for one volume of a MULTI_NODE access mode run side by
	// side on different nodes. Otherwise there is one call per volume at a time.
	ParallelMultiNode bool
	// Secrets are the Secrets that volumes of the driver may name; none: all that no driver lists.
	Secrets  SecretPatterns
	Insecure bool // TCP to another machine without TLS is allowed; never together with TLS
}

// Mode is what is done for a driver.
type Mode string

const (
	ModeActive  Mode = "active"  // attach and detach
	ModeObserve Mode = "observe" // change nothing, and say what would be done
	ModePaused  Mode = "paused"  // stay connected, and take no work
)

// Retry bounds the backoff of one VolumeAttachment, which doubles with each failure.
type Retry struct {
	Initial time.Duration // after the first failure; positive
	Max     time.Duration // after many failures; at least Initial
}

// Probe is the health check of the driver.
type Probe struct {
	Interval time.Duration // between two Probe calls; positive
}

// Drift says how often the driver lists its volumes with their nodes (ListVolumes), and what
// follows where Kubernetes disagrees. It holds for drivers that have the capabilities.
type Drift struct {
	Interval   time.Duration    // between two listings; 0 means that none are made
	PageSize   int              // volumes on one page; 0 leaves it to the driver
	Action     DriftAction      // what the hub does about a volume that is missing where it should be in two listings in a row
	Unexpected UnexpectedAction // what the hub does about a volume that two listings in a row have on a node where no VolumeAttachment needs it
}

// DriftAction is what the hub does when a volume is not published where its
// VolumeAttachment says it is.
type DriftAction string

const (
	DriftReattach DriftAction = "reattach" // report it, and publish the volume again
	DriftReport   DriftAction = "report"   // report it only
)

// UnexpectedAction is what the hub does when a driver lists a volume on a node where no
// VolumeAttachment needs it.
type UnexpectedAction string

const (
	UnexpectedReport UnexpectedAction = "report" // report it only
	UnexpectedDetach UnexpectedAction = "detach" // report it, and unpublish the volume there
)

// KubeAPI limits the writes to the Kubernetes API for one driver.
type KubeAPI struct {
	QPS   float64 // per second; 0 means no limit
	Burst int     // at once after a rest; 0 leaves it to BurstOrDefault
}

// BurstOrDefault is how many writes can be made at once: Burst, or what two seconds
// allow if nothing was said. It is at least 1.
func (k KubeAPI) BurstOrDefault() int {
	if k.Burst > 0 {
		return k.Burst
	}
	return max(1, int(math.Ceil(2*k.QPS)))
}

// Snapshot is the whole set of drivers that should be served, by their names; those with
// WindDown only under its condition, which the receiver checks. It is never changed once
// it has been sent.
type Snapshot map[string]Driver

// SanitizedName returns the form of a driver's name in finalizers and leases, by
// csi-attacher's rule: a character that is no letter, digit or '-' becomes '-', and a '-' at
// the end gets an 'X' after it. Different drivers can have equal sanitized names ("a.b",
// "a-b"); they cannot be served side by side.
func SanitizedName(driver string) string {
	name := strings.Map(func(r rune) rune {
		if r == '-' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' {
			return r
		}
		return '-'
	}, driver)
	if strings.HasSuffix(name, "-") {
		name += "X"
	}
	return name
}

// Lease names the Lease object that the process that serves a driver holds.
type Lease struct {
	Name      string // "" for LeaseName of the driver
	Namespace string // "" for the namespace that the program has for its leases
}

// String is "namespace/name", or the name alone.
func (l Lease) String() string {
	if l.Namespace == "" {
		return l.Name
	}
	return l.Namespace + "/" + l.Name
}

// LeaseOf returns the lease of the driver, with its name.
func (d Driver) LeaseOf() Lease {
	l := d.Lease
	l.Name = cmp.Or(l.Name, LeaseName(d.Name))
	return l
}

// LeaseName returns the default name of a driver's lease. It is csi-attacher's, so that only
// one of both works. The Kubernetes API allows no capitals in it: csi-attacher cannot have a
// lease for a driver with capitals, and here they become small letters. Drivers whose names
// differ in nothing else share this lease.
func LeaseName(driver string) string {
	return strings.ToLower(SanitizedName("external-attacher-leader-" + driver))
}
