package adopt

import "time"

// FlagParser reads the arguments of a csi-attacher. Its error has every flag whose value cannot be read. Flags that
// it does not know are no error, and neither are variables in the values of flags that no setting stands for.
type FlagParser func(args []string) (Flags, error)

// Flags are the arguments of a csi-attacher.
type Flags struct {
	Settings       []Setting     // what the flags are in drivers.yaml, in the order of the flags
	Address        string        // --csi-address; "" if not given
	LeaderElection bool          // --leader-election
	LeaseNamespace string        // --leader-election-namespace; "" if not given
	LeaseDuration  time.Duration // --leader-election-lease-duration; 0 if not given
	LockType       string        // --leader-election-type of csi-attacher before 2.0; "" if not given
	Kubeconfig     string        // --kubeconfig; "" if not given
	HTTPEndpoint   string        // --http-endpoint or --metrics-address; "" if not given
	Other          []OtherFlag   // known flags that no setting stands for
	Unknown        []string      // arguments that csi-attacher of any known release does not have, as they are written
}

// Setting is a setting of drivers.yaml that a flag stands for.
type Setting struct {
	Key   string // with dots: retry.max
	Value string // in YAML
	Flag  string // with its dashes
}

// OtherFlag is a flag of csi-attacher that no setting stands for.
type OtherFlag struct{ Flag, Why string }
