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

// notCarriedOver are flags of csi-attacher that no setting stands for, and that change nothing for the hub: it takes the
// Lease that csi-attacher takes, and has logs, metrics and times of a Lease of its own.
var notCarriedOver = []string{"leader-election", "leader-election-lease-duration", "leader-election-renew-deadline", "leader-election-retry-period", "leader-election-labels",
	"http-endpoint", "metrics-address", "metrics-path", "v", "vmodule", "logging-format", "log-flush-frequency", "log-text-split-stream", "log-text-info-buffer-size",
	"log-json-split-stream", "log-json-info-buffer-size", "version", "csi-address", "kubeconfig", "leader-election-namespace"}

// sidecarFlagSet returns the flags of csi-attachers: the hub's own, which are csi-attacher's, and --version.
func sidecarFlagSet() (set *pflag.FlagSet, hub *hubFlags, lockType *string) {
	set = pflag.NewFlagSet("csi-attacher", pflag.ContinueOnError)
	set.SortFlags = false // Visit in the order of the arguments
	hub = newHubFlags(set)
	set.Bool("version", false, "")
	return set, hub, set.String("leader-election-type", "", "") // of csi-attacher before 2.0: Visit names it as unknown
}

// sidecarFlags reads the arguments of a csi-attacher.
func sidecarFlags(args []string) (adopt.Flags, error) {
	set, hub, lockType := sidecarFlagSet()
	known, unknown := knownFlags(withTwoDashes(args, set), set)
	var problems []error
	asWritten := map[string]string{} // 1m where the flag says 1m0s
	for _, words := range known {
		name, value, _ := strings.Cut(strings.TrimLeft(strings.Join(words, "="), "-"), "=")
		if value != "" {
			asWritten[name] = value
		}
		err := set.Parse(words)
		if strings.Contains(value, "$(") && slices.Contains(notCarriedOver, name) && !strings.HasPrefix(name, "leader-election") {
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
			f.Other = append(f.Other, written+": "+reason)
		} else if key, ok := settings[flag.Name]; ok {
			value, err := settingValue(flag)
			problems = append(problems, err)
			f.Settings = append(f.Settings, adopt.Setting{Key: key, Value: value, Flag: "--" + flag.Name})
		} else if !slices.Contains(notCarriedOver, flag.Name) && !slices.ContainsFunc(ignored, func(i struct{ flag, why string }) bool { return i.flag == flag.Name }) {
			f.Unknown = append(f.Unknown, written) // a flag of the hub that no csi-attacher has
		}
	})
	return f, errors.Join(problems...)
}

// carriedOver returns the keys of the configuration for the flags that were given, and for those whose value the configuration
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
			refused[b.name] = fmt.Sprintf("%s of the configuration cannot have this value: %v; the hub's default holds until you write another", b.key, err)
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
