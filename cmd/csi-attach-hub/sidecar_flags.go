package main

import (
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

// notCarriedOver are flags of csi-attacher that no setting replaces, and that change nothing for the hub: it takes the
// Lease that csi-attacher takes, and has logs, metrics and times of a Lease of its own.
var notCarriedOver = []string{"leader-election", "leader-election-lease-duration", "leader-election-renew-deadline", "leader-election-retry-period", "leader-election-labels",
	"http-endpoint", "metrics-address", "metrics-path", "v", "vmodule", "logging-format", "log-flush-frequency", "log-text-split-stream", "log-text-info-buffer-size",
	"log-json-split-stream", "log-json-info-buffer-size", "version", "csi-address", "kubeconfig", "leader-election-namespace"}

// sidecarFlags reads the arguments of a csi-attacher: the hub's own flags, which are csi-attacher's, and --version.
func sidecarFlags(args []string) (adopt.Flags, error) {
	set := pflag.NewFlagSet("csi-attacher", pflag.ContinueOnError)
	set.SortFlags = false // Visit in the order of the arguments
	hub := newHubFlags(set)
	set.Bool("version", false, "")
	lockType := set.String("leader-election-type", "", "") // of csi-attacher before 2.0: Visit names it as unknown
	known, unknown := knownFlags(withTwoDashes(args, set), set)
	var problems []error
	for _, words := range known {
		err := set.Parse(words)
		name, value, _ := strings.Cut(strings.TrimLeft(strings.Join(words, "="), "-"), "=")
		if !strings.Contains(value, "$(") || !slices.Contains(notCarriedOver, name) || strings.HasPrefix(name, "leader-election") {
			problems = append(problems, err)
		}
	}
	f := adopt.Flags{
		Address: hub.socket, Kubeconfig: hub.kubeconfig, LockType: *lockType, Unknown: unknown,
		LeaderElection: set.Changed("leader-election") && hub.leases.Enabled, LeaseNamespace: hub.leases.Namespace, LeaseDuration: hub.leases.Duration,
	}
	if reasons := validation.IsDNS1123Label(f.LeaseNamespace); f.LeaseNamespace != "" && len(reasons) > 0 && !strings.Contains(f.LeaseNamespace, "$(") {
		problems = append(problems, fmt.Errorf("--leader-election-namespace: %q is not a valid namespace: %s", f.LeaseNamespace, strings.Join(reasons, "; ")))
	}
	if slices.ContainsFunc(endpointFlags, set.Changed) {
		f.Other = append(f.Other, "--http-endpoint="+hub.endpoint+": its metrics end with csi-attacher, and so does the probe of /healthz/leader-election. Scrape the hub, and remove what leads there (Service, ServiceMonitor, kube-rbac-proxy)")
	}
	byDefault := map[string]bool{}
	for _, d := range csiAttacherDefaults {
		if name, value, _ := strings.Cut(d, "="); !set.Changed(name) {
			byDefault[name] = true
			problems = append(problems, set.Set(name, value))
		}
	}
	refused := hub.refusedSettings()
	set.Visit(func(flag *pflag.Flag) {
		written := fmt.Sprintf("--%s=%s", flag.Name, flag.Value)
		if reason := refused[flag.Name]; reason != "" {
			f.Other = append(f.Other, written+": "+reason)
		} else if key := settingOf[flag.Name]; key != "" {
			value, err := settingValue(flag)
			problems = append(problems, err)
			from := "--" + flag.Name
			if byDefault[flag.Name] {
				from = "csi-attacher's default"
			}
			f.Settings = append(f.Settings, adopt.Setting{Key: key, Value: value, Flag: from})
		} else if !slices.Contains(notCarriedOver, flag.Name) && !slices.ContainsFunc(ignored, func(i struct{ flag, why string }) bool { return i.flag == flag.Name }) {
			f.Unknown = append(f.Unknown, written) // a flag of the hub that no csi-attacher has
		}
	})
	return f, errors.Join(problems...)
}

// csiAttacherDefaults are flags with those defaults of csi-attacher that are not the hub's.
var csiAttacherDefaults = []string{"timeout=15s", "worker-threads=10", "retry-interval-start=1s", "retry-interval-max=5m", "max-entries=0"}

// refusedSettings returns the flags that were given, and whose value the configuration cannot have, with the reason.
func (f *hubFlags) refusedSettings() map[string]string {
	if f.set.Changed("retry-interval-max") {
		f.driver.Retry.Initial = min(f.driver.Retry.Initial, f.driver.Retry.Max) // as in csi-attacher
	}
	refused := map[string]string{}
	s := registry.DefaultSettings()
	f.applyDriver(&s, func(flag string, err error) {
		switch unlimited := f.driver.KubeAPI.QPS <= 0; {
		case unlimited && flag == "kube-api-burst":
			refused[flag] = "without --kube-api-qps the hub has no limit of writes"
		case unlimited && flag == "kube-api-qps":
			refused[flag] = "it means no limit, as the default of the hub"
		case err != nil:
			refused[flag] = fmt.Sprintf("%s of the configuration cannot have this value: %v; the hub's default holds until you write another", settingOf[flag], err)
		}
	})
	return refused
}

// settingValue returns the value of a flag in YAML.
func settingValue(flag *pflag.Flag) (string, error) {
	switch flag.Value.Type() {
	case "string":
		text, err := yaml.Marshal(flag.Value.String())
		return strings.TrimSpace(string(text)), err
	case "duration":
		d, err := time.ParseDuration(flag.Value.String())
		return registry.FormatDuration(d), err
	default:
		return flag.Value.String(), nil
	}
}

// knownFlags splits arguments into those of known flags, each with its value if that is a word of its own, and the
// others. A word behind an unknown flag without "=" is taken as its value. A word after "--" is no flag.
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
