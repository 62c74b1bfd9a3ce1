package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

// notCarriedOver are flags of csi-attacher that no setting of drivers.yaml stands for, each with the reason.
var notCarriedOver = map[string]string{
	"leader-election":                "the hub takes the Lease that csi-attacher takes",
	"leader-election-lease-duration": "the hub has one for all drivers, a flag of its own",
	"leader-election-renew-deadline": "the hub has one for all drivers, a flag of its own",
	"leader-election-retry-period":   "the hub has one for all drivers, a flag of its own",
	"leader-election-labels":         "the hub keeps the labels of the Lease",
	"http-endpoint":                  "the hub serves the metrics of all drivers",
	"metrics-address":                "the hub serves the metrics of all drivers",
	"metrics-path":                   "the hub serves the metrics of all drivers",
	"v":                              "a flag of the hub",
	"vmodule":                        "a flag of the hub",
	"logging-format":                 "a flag of the hub",
	"log-flush-frequency":            "a flag of the hub",
	"version":                        "it only prints the version",
}

// sidecarFlags reads the arguments of a csi-attacher by the hub's own flags, which are csi-attacher's.
func sidecarFlags(args []string) (adopt.Flags, error) {
	set := pflag.NewFlagSet("csi-attacher", pflag.ContinueOnError)
	set.SortFlags = false // Visit in the order of the arguments
	hub := newHubFlags(set)
	set.Bool("version", false, "")
	known, unknown := knownFlags(withTwoDashes(args, set), set)
	if err := set.Parse(known); err != nil {
		return adopt.Flags{}, err
	}
	f := adopt.Flags{
		Address: hub.dropIn.csiAddress, Kubeconfig: hub.kubeconfig, Unknown: unknown,
		LeaderElection: set.Changed("leader-election") && hub.leases.values.Enabled, LeaseNamespace: hub.leases.values.Namespace,
	}
	for _, name := range endpointFlags {
		if set.Changed(name) {
			f.HTTPEndpoint = hub.http.endpoint
		}
	}
	if set.Changed("leader-election-lease-duration") {
		f.LeaseDuration = hub.leases.values.Duration
	}
	keys := map[string]string{}
	for _, b := range hub.driver.bindings {
		keys[b.name] = b.key
	}
	why := map[string]string{}
	for _, i := range ignored {
		why[i.flag] = i.why
	}
	var problems []error
	set.Visit(func(flag *pflag.Flag) {
		if key, ok := keys[flag.Name]; ok {
			value, err := settingValue(flag)
			problems = append(problems, err)
			f.Settings = append(f.Settings, adopt.Setting{Key: key, Value: value, Flag: "--" + flag.Name})
			return
		}
		if reason := why[flag.Name] + notCarriedOver[flag.Name]; reason != "" {
			f.Other = append(f.Other, adopt.OtherFlag{Flag: fmt.Sprintf("--%s=%s", flag.Name, flag.Value), Why: reason})
		}
	})
	_, err := hub.driver.settings(set.Changed, true)
	return f, errors.Join(append(problems, err)...)
}

// settingValue returns the value of a flag in YAML.
func settingValue(flag *pflag.Flag) (string, error) {
	switch flag.Value.Type() {
	case "string":
		text, err := yaml.Marshal(flag.Value.String())
		return strings.TrimSpace(string(text)), err
	case "duration": // 6m0s
		text := strings.Replace(flag.Value.String(), "m0s", "m", 1)
		return strings.Replace(text, "h0m", "h", 1), nil
	default:
		return flag.Value.String(), nil
	}
}

// knownFlags splits arguments into those of known flags and the others. A word behind an unknown flag without "=" is
// taken as its value.
func knownFlags(args []string, set *pflag.FlagSet) (known, unknown []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		flag := set.Lookup(name)
		if flag == nil && len(name) > 0 && !strings.HasPrefix(arg, "--") {
			flag = set.ShorthandLookup(name[:1])
		}
		isFlag := strings.HasPrefix(arg, "-")
		takesNext := isFlag && !hasValue && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-")
		switch {
		case isFlag && flag != nil:
			known = append(known, arg)
			if takesNext && flag.NoOptDefVal == "" {
				i++
				known = append(known, args[i])
			}
		case takesNext:
			unknown = append(unknown, arg+" "+args[i+1])
			i++
		default:
			unknown = append(unknown, arg)
		}
	}
	return known, unknown
}
