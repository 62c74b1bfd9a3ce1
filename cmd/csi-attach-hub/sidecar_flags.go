package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	ofHub     = "a flag of the hub, not of a driver"
	oneForAll = "the hub has one for all drivers, a flag of its own"
	metricsOf = "the hub serves the metrics of all drivers"
	gone      = "csi-attacher 2.0 removed it, and the hub does not need it"
)

// notCarriedOver are flags of csi-attacher that no setting of drivers.yaml stands for, each with the reason.
var notCarriedOver = map[string]string{
	"leader-election":                "the hub takes the Lease that csi-attacher takes",
	"leader-election-lease-duration": oneForAll,
	"leader-election-renew-deadline": oneForAll,
	"leader-election-retry-period":   oneForAll,
	"leader-election-labels":         "the hub keeps the labels of the Lease",
	"http-endpoint":                  metricsOf,
	"metrics-address":                metricsOf,
	"metrics-path":                   metricsOf,
	"v":                              ofHub,
	"vmodule":                        ofHub,
	"logging-format":                 ofHub,
	"log-flush-frequency":            ofHub,
	"log-text-split-stream":          ofHub,
	"log-text-info-buffer-size":      ofHub,
	"log-json-split-stream":          ofHub,
	"log-json-info-buffer-size":      ofHub,
	"version":                        "it only prints the version",
	"connection-timeout":             gone,
	"dummy":                          gone,
	"leader-election-identity":       gone,
	"leader-election-type":           gone,
}

// sidecarFlagSet returns the flags of csi-attachers: the hub's own, which are csi-attacher's, and those that old
// releases had.
func sidecarFlagSet() (set *pflag.FlagSet, hub *hubFlags, lockType *string) {
	set = pflag.NewFlagSet("csi-attacher", pflag.ContinueOnError)
	set.SortFlags = false // Visit in the order of the arguments
	hub = newHubFlags(set)
	set.Bool("version", false, "")
	set.Duration("connection-timeout", 0, "")
	set.Bool("dummy", false, "")
	set.String("leader-election-identity", "", "")
	return set, hub, set.String("leader-election-type", "", "")
}

// sidecarFlags reads the arguments of a csi-attacher.
func sidecarFlags(args []string) (adopt.Flags, error) {
	set, hub, lockType := sidecarFlagSet()
	known, unknown := knownFlags(withTwoDashes(args, set), set)
	var problems []error
	var unset []adopt.OtherFlag
	asWritten := map[string]string{} // 1m where the flag says 1m0s
	for _, words := range known {
		name, value, _ := strings.Cut(strings.TrimLeft(strings.Join(words, "="), "-"), "=")
		if value != "" {
			asWritten[name] = value
		}
		err := set.Parse(words)
		if err != nil && strings.Contains(value, "$(") && isHarmless(name) {
			unset = append(unset, adopt.OtherFlag{Flag: "--" + name + "=" + value, Why: notCarriedOver[name]})
			err = nil
		}
		problems = append(problems, err)
	}
	f := adopt.Flags{
		Address: hub.dropIn.csiAddress, Kubeconfig: hub.kubeconfig, LockType: *lockType, Unknown: unknown,
		LeaderElection: set.Changed("leader-election") && hub.leases.values.Enabled, LeaseNamespace: hub.leases.values.Namespace,
	}
	if reasons := validation.IsDNS1123Label(f.LeaseNamespace); f.LeaseNamespace != "" && len(reasons) > 0 && !strings.Contains(f.LeaseNamespace, "$(") {
		problems = append(problems, fmt.Errorf("--leader-election-namespace: %q is not a valid namespace: %s", f.LeaseNamespace, strings.Join(reasons, "; ")))
	}
	for _, name := range endpointFlags {
		if set.Changed(name) {
			f.HTTPEndpoint = hub.http.endpoint
		}
	}
	if set.Changed("leader-election-lease-duration") {
		f.LeaseDuration = hub.leases.values.Duration
	}
	settings, outOfRange := hub.driver.carriedOver(set.Changed)
	set.Visit(func(flag *pflag.Flag) {
		written := fmt.Sprintf("--%s=%s", flag.Name, cmp.Or(asWritten[flag.Name], flag.Value.String()))
		if reason := outOfRange[flag.Name]; reason != "" {
			f.Other = append(f.Other, adopt.OtherFlag{Flag: written, Why: reason})
		} else if key, ok := settings[flag.Name]; ok {
			value, err := settingValue(flag)
			problems = append(problems, err)
			f.Settings = append(f.Settings, adopt.Setting{Key: key, Value: value, Flag: "--" + flag.Name})
		} else if reason := whyIgnored(flag.Name) + notCarriedOver[flag.Name]; reason != "" {
			f.Other = append(f.Other, adopt.OtherFlag{Flag: written, Why: reason})
		} else if !slices.Contains([]string{"csi-address", "kubeconfig", "leader-election-namespace"}, flag.Name) {
			f.Unknown = append(f.Unknown, written) // a flag of the hub that no csi-attacher has
		}
	})
	f.Other = append(f.Other, unset...)
	return f, errors.Join(problems...)
}

// isHarmless reports whether the value of a flag changes nothing for the hub.
func isHarmless(name string) bool {
	return notCarriedOver[name] != "" && !strings.HasPrefix(name, "leader-election")
}

func whyIgnored(flag string) string {
	for _, i := range ignored {
		if i.flag == flag {
			return i.why
		}
	}
	return ""
}

// carriedOver returns the keys of drivers.yaml for the flags that were given, and for those whose value drivers.yaml
// cannot have the reason.
func (f *driverFlags) carriedOver(given given) (keys, refused map[string]string) {
	keys, refused = map[string]string{}, map[string]string{}
	if given("retry-interval-max") {
		f.values.Retry.Initial = min(f.values.Retry.Initial, f.values.Retry.Max) // as in csi-attacher
	}
	if given("kube-api-burst") && f.values.KubeAPI.QPS <= 0 {
		refused["kube-api-burst"] = "without --kube-api-qps the hub has no limit of writes"
	}
	if given("kube-api-qps") && f.values.KubeAPI.QPS <= 0 {
		refused["kube-api-qps"] = "it means no limit, as the default of the hub"
	}
	s := registry.DefaultSettings()
	for _, b := range f.bindings {
		if given(b.name) && refused[b.name] == "" {
			b.apply(&s)
		}
	}
	for _, b := range f.bindings {
		if !given(b.name) || refused[b.name] != "" {
			continue
		}
		keys[b.name] = b.key
		if err := s.CheckSetting(b.key); err != nil {
			refused[b.name] = fmt.Sprintf("%s of drivers.yaml cannot have this value: %v; the hub's default holds until you write another", b.key, err)
		}
	}
	return keys, refused
}

// settingValue returns the value of a flag in YAML.
func settingValue(flag *pflag.Flag) (string, error) {
	switch flag.Value.Type() {
	case "string":
		text, err := yaml.Marshal(flag.Value.String())
		return strings.TrimSpace(string(text)), err
	case "duration":
		d, err := time.ParseDuration(flag.Value.String())
		return adopt.Duration(d), err
	default:
		return flag.Value.String(), nil
	}
}

// knownFlags splits arguments into those of known flags, each with its value if that is a word of its own, and the
// others. A word behind an unknown flag without "=" is taken as its value. What follows "--" is no flag.
func knownFlags(args []string, set *pflag.FlagSet) (known [][]string, unknown []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return known, append(unknown, args[i:]...)
		}
		name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		flag := set.Lookup(name)
		if flag == nil && len(name) > 0 && !strings.HasPrefix(arg, "--") {
			flag = set.ShorthandLookup(name[:1])
		}
		isFlag := strings.HasPrefix(arg, "-")
		hasNext := isFlag && !hasValue && i+1 < len(args)
		switch {
		case isFlag && flag != nil && hasNext && flag.NoOptDefVal == "" && (flag.Shorthand == "" || len(name) == 1):
			known = append(known, []string{arg, args[i+1]})
			i++
		case isFlag && flag != nil:
			known = append(known, []string{arg})
		case hasNext && !strings.HasPrefix(args[i+1], "-"):
			unknown = append(unknown, arg+" "+args[i+1])
			i++
		default:
			unknown = append(unknown, arg)
		}
	}
	return known, unknown
}
