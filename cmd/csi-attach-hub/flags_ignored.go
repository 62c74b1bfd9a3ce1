package main

import (
	"fmt"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// ignored are the flags of csi-attacher that have no effect here, each with the reason.
var ignored = []struct{ flag, why string }{
	{"resync", "changes are noticed at once, and --reconcile-sync looks for drift"},
	{"max-grpc-log-length", "answers of drivers are not logged"},
	{"automaxprocs", "Go follows the CPU limit of the container by itself"},
	{"feature-gates", "the features of csi-attacher's gates are always on"},
}

// addIgnored adds the ignored flags, so that csi-attacher's manifests work. Their values are
// parsed and dropped.
func addIgnored(set *pflag.FlagSet) {
	set.Duration("resync", 0, "")
	set.Int("max-grpc-log-length", 0, "")
	set.Bool("automaxprocs", false, "")
	set.Var(cliflag.NewMapStringBool(&map[string]bool{}), "feature-gates", "")
	for _, i := range ignored {
		set.Lookup(i.flag).Usage = "no effect, accepted for manifests of csi-attacher: " + i.why
	}
}

// ignoredWarnings returns a warning for each ignored flag that was given.
func ignoredWarnings(given given) []string {
	var all []string
	for _, i := range ignored {
		if given(i.flag) {
			all = append(all, fmt.Sprintf("--%s has no effect: %s", i.flag, i.why))
		}
	}
	return all
}
