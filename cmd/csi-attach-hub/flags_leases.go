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

// podNamespaceFile holds the namespace of the Pod of this process.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// leaseFlags are csi-attacher's flags of leader election. They apply to the lease of each
// driver.
type leaseFlags struct {
	values leaseSettings // unchecked, without the defaults that depend on other flags or the Pod
	labels string
}

// leaseSettings are the checked values of leaseFlags.
type leaseSettings struct {
	Enabled       bool   // serve a driver only while its lease is held
	Namespace     string // of leases for which drivers.yaml names none; never ""
	Duration      time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration
	Labels        map[string]string // of the leases; nil for none
}

func (f *leaseFlags) add(set *pflag.FlagSet) {
	set.BoolVar(&f.values.Enabled, "leader-election", true,
		"serve a driver only while this process holds the driver's lease, the one that csi-attacher takes; with --csi-address off by default, as csi-attacher")
	set.StringVar(&f.values.Namespace, "leader-election-namespace", "", "`namespace` of the leases; without it $POD_NAMESPACE, then the namespace of the Pod, then \"default\"")
	set.DurationVar(&f.values.Duration, "leader-election-lease-duration", 15*time.Second, "time after which a lease that is not renewed expires, in whole seconds")
	set.DurationVar(&f.values.RenewDeadline, "leader-election-renew-deadline", 10*time.Second, "time limit for renewing a lease; then the driver is released")
	set.DurationVar(&f.values.RetryPeriod, "leader-election-retry-period", 5*time.Second, "interval of renewing a lease, or of trying to take it")
	set.StringVar(&f.labels, "leader-election-labels", "", "`labels` of the leases, as key:value,key2:value2")
}

// settings checks the flags. Its error has every mistake.
func (f *leaseFlags) settings(given given, dropIn bool) (leaseSettings, error) {
	s := f.values
	s.Enabled = s.Enabled && (given("leader-election") || !dropIn)
	s.Namespace = cmp.Or(s.Namespace, podNamespace(os.Getenv("POD_NAMESPACE"), podNamespaceFile))
	var problems []error
	if s.Enabled {
		problems = s.checkTimes()
	}
	if reasons := validation.IsDNS1123Label(s.Namespace); len(reasons) > 0 {
		problems = append(problems, fmt.Errorf("--leader-election-namespace: %q is not a valid namespace: %s", s.Namespace, strings.Join(reasons, "; ")))
	}
	var err error
	if s.Labels, err = parseLabels(f.labels); err != nil {
		problems = append(problems, fmt.Errorf("--leader-election-labels: %w", err))
	}
	return s, errors.Join(problems...)
}

// checkTimes returns the times that contradict each other. client-go's leader election has the
// same rules: it waits for up to 1.2 times the retry period between two tries.
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

// podNamespace returns the namespace of this process: the value from the environment, else
// the content of the file, else "default".
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

// parseLabels parses labels in csi-attacher's form. It returns nil for "".
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
			reasons = []string{"':' is missing"}
		}
		if strings.HasPrefix(key, "attach-hub/") {
			reasons = append(reasons, "attach-hub/ is for labels that the hub sets itself")
		}
		if _, twice := labels[key]; twice {
			reasons = append(reasons, "the key is listed twice")
		}
		if len(reasons) > 0 {
			problems = append(problems, fmt.Errorf("%q is not a valid label, write key:value: %s", pair, strings.Join(reasons, "; ")))
		}
		labels[key] = value
	}
	return labels, errors.Join(problems...)
}
