package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// ignoredFlags are flags of csi-attacher that can have no meaning here. They are
// taken so that its manifests work, and have their form checked.
type ignoredFlags struct {
	resync           time.Duration
	maxGRPCLogLength int
	automaxprocs     bool
	featureGates     map[string]bool
}

// ignored is why each of them has no meaning.
var ignored = []struct{ flag, why string }{
	{"resync", "what changes is noticed when it does, and drift is looked for by --reconcile-sync"},
	{"max-grpc-log-length", "answers of drivers are not logged"},
	{"automaxprocs", "Go heeds the CPU limit of the container by itself"},
	{"feature-gates", "what csi-attacher's gates turn on is always on"},
}

func (f *ignoredFlags) add(set *pflag.FlagSet) {
	set.DurationVar(&f.resync, "resync", 0, "")
	set.IntVar(&f.maxGRPCLogLength, "max-grpc-log-length", 0, "")
	set.BoolVar(&f.automaxprocs, "automaxprocs", false, "")
	set.Var(cliflag.NewMapStringBool(&f.featureGates), "feature-gates", "")
	for _, one := range ignored {
		set.Lookup(one.flag).Usage = "a flag of csi-attacher without effect here: " + one.why
	}
}

// warnings says which of them were given.
func (f *ignoredFlags) warnings(given given) []string {
	var all []string
	for _, one := range ignored {
		if given(one.flag) {
			all = append(all, fmt.Sprintf("--%s has no effect: %s", one.flag, one.why))
		}
	}
	return all
}
