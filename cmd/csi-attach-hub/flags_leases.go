package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// podNamespaceFile has the namespace of the Pod that this process runs in.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// leaseFlags are csi-attacher's flags of leader election. They hold for the lease of
// each driver.
type leaseFlags struct {
	enabled       bool
	namespace     string
	duration      time.Duration
	renewDeadline time.Duration
	retryPeriod   time.Duration
	labels        string
}

// leaseSettings is what they say.
type leaseSettings struct {
	Enabled       bool   // drivers are served while their leases are held
	Namespace     string // of leases for which drivers.yaml names none; never ""
	Duration      time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration
	Labels        map[string]string // of the leases; nil for none
}

func (f *leaseFlags) add(set *pflag.FlagSet) {
	set.BoolVar(&f.enabled, "leader-election", true,
		"serve a driver only while this process holds the driver's lease, the one that its csi-attacher would hold; with --csi-address not by default, as csi-attacher")
	set.StringVar(&f.namespace, "leader-election-namespace", "",
		"`namespace` of the leases; without it that of the environment variable POD_NAMESPACE, then that of the Pod, then default")
	set.DurationVar(&f.duration, "leader-election-lease-duration", 15*time.Second, "how long a lease holds that is not renewed; whole seconds")
	set.DurationVar(&f.renewDeadline, "leader-election-renew-deadline", 10*time.Second, "how long renewing a lease is tried before the driver is let go of")
	set.DurationVar(&f.retryPeriod, "leader-election-retry-period", 5*time.Second, "how often a lease is renewed, or tried to take")
	set.StringVar(&f.labels, "leader-election-labels", "", "`labels` of the leases, as key:value,key2:value2")
}

// settings checks the flags. Its error has every mistake.
func (f *leaseFlags) settings(given given, dropIn bool) (leaseSettings, error) {
	s := leaseSettings{
		Enabled:       f.enabled && (given("leader-election") || !dropIn),
		Namespace:     cmp.Or(f.namespace, podNamespace(os.Getenv("POD_NAMESPACE"), podNamespaceFile)),
		Duration:      f.duration,
		RenewDeadline: f.renewDeadline,
		RetryPeriod:   f.retryPeriod,
	}
	var problems []error
	if s.Enabled {
		problems = s.checkTimes()
	}
	if reasons := validation.IsDNS1123Label(s.Namespace); len(reasons) > 0 {
		problems = append(problems, fmt.Errorf("--leader-election-namespace: %q is no namespace: %s", s.Namespace, strings.Join(reasons, "; ")))
	}
	labels, err := parseLabels(f.labels)
	if err != nil {
		problems = append(problems, fmt.Errorf("--leader-election-labels: %w", err))
	}
	s.Labels = labels
	return s, errors.Join(problems...)
}

// checkTimes says which times do not go together. client-go waits for up to 1.2
// times the retry period between two tries.
func (s leaseSettings) checkTimes() []error {
	var problems []error
	if s.Duration < time.Second || s.Duration%time.Second != 0 {
		problems = append(problems, fmt.Errorf("--leader-election-lease-duration is %v: it must be whole seconds, at least one", s.Duration))
	}
	if s.RenewDeadline >= s.Duration {
		problems = append(problems, fmt.Errorf("--leader-election-renew-deadline is %v: it must be below the lease duration, which is %v", s.RenewDeadline, s.Duration))
	}
	if s.RetryPeriod <= 0 {
		problems = append(problems, fmt.Errorf("--leader-election-retry-period is %v: it must be positive", s.RetryPeriod))
	} else if longest := s.RetryPeriod * 6 / 5; s.RenewDeadline <= longest {
		problems = append(problems, fmt.Errorf("--leader-election-renew-deadline is %v: it must be above 1.2 times the retry period, which makes %v", s.RenewDeadline, longest))
	}
	return problems
}

// podNamespace returns the namespace that this process runs in: what the
// environment says, then what the file says, then the one that is always there.
func podNamespace(environment, file string) string {
	if environment != "" {
		return environment
	}
	if data, err := os.ReadFile(file); err == nil {
		if namespace := strings.TrimSpace(string(data)); namespace != "" {
			return namespace
		}
	}
	return "default"
}

// parseLabels reads labels in csi-attacher's form.
func parseLabels(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	labels := map[string]string{}
	var problems []error
	for pair := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(pair, ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		reasons := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		if !ok {
			reasons = []string{"there is no ':' in it"}
		}
		if strings.HasPrefix(key, "attach-hub/") {
			reasons = append(reasons, "attach-hub/ is for labels that the hub sets itself")
		}
		if _, twice := labels[key]; twice {
			reasons = append(reasons, "the key is there twice")
		}
		if len(reasons) > 0 {
			problems = append(problems, fmt.Errorf("%q is no label, write key:value: %s", pair, strings.Join(reasons, "; ")))
		}
		labels[key] = value
	}
	return labels, errors.Join(problems...)
}
