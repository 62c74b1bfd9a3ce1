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
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
)

// podNamespaceFile holds the namespace of the Pod of this process.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// leaseSettings are what csi-attacher's flags of leader election say. They apply to the lease of each driver.
type leaseSettings struct {
	Enabled       bool // serve a driver only while its lease is held
	lease.Options      // Namespace is also that of leases for which drivers.yaml names none; never ""
}

func (f *hubFlags) addLeases(set *pflag.FlagSet) {
	set.BoolVar(&f.leases.Enabled, "leader-election", true,
		"serve a driver only while this process holds the driver's lease, which csi-attacher uses too; with --csi-address off by default, as csi-attacher")
	set.StringVar(&f.leases.Namespace, "leader-election-namespace", "", "`namespace` of the leases; without it $POD_NAMESPACE, then the namespace of the Pod, then \"default\"")
	set.DurationVar(&f.leases.Duration, "leader-election-lease-duration", 15*time.Second, "time after which a lease that is not renewed expires, in whole seconds")
	set.DurationVar(&f.leases.RenewDeadline, "leader-election-renew-deadline", 10*time.Second, "time limit for renewing a lease; then the driver is released")
	set.DurationVar(&f.leases.RetryPeriod, "leader-election-retry-period", 5*time.Second, "interval of renewing a lease, or of trying to take it")
	set.StringVar(&f.leaseLabels, "leader-election-labels", "", "`labels` of the leases, as key:value,key2:value2")
}

// leaseSettings checks the flags. Its error has every mistake.
func (f *hubFlags) leaseSettings(dropIn bool) (leaseSettings, error) {
	s := f.leases
	s.Enabled = s.Enabled && (f.set.Changed("leader-election") || !dropIn)
	s.Namespace = cmp.Or(s.Namespace, podNamespace(os.Getenv("POD_NAMESPACE"), podNamespaceFile))
	var problems []error
	if s.Enabled {
		for _, err := range s.CheckTimes() {
			problems = append(problems, fmt.Errorf("--leader-election-%w", err))
		}
	}
	if reasons := validation.IsDNS1123Label(s.Namespace); len(reasons) > 0 {
		problems = append(problems, fmt.Errorf("--leader-election-namespace: %q is not a valid namespace: %s", s.Namespace, strings.Join(reasons, "; ")))
	}
	var err error
	if s.Labels, err = parseLabels(f.leaseLabels); err != nil {
		problems = append(problems, fmt.Errorf("--leader-election-labels: %w", err))
	}
	return s, errors.Join(problems...)
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

// newLeases returns the leases that decide which process works for which driver, nil without leader election. They have a
// connection of their own: slow or throttled requests for volumes must not delay the renewal of a lease.
func (s hubSettings) newLeases(config *rest.Config) (*lease.Leases, error) {
	if !s.leases.Enabled {
		return nil, nil
	}
	kube, err := newKubeClient(withOwnConnection(config, "leases"))
	if err != nil {
		return nil, fmt.Errorf("for leases: %w", err)
	}
	o := s.leases.Options
	o.Kube, o.Identity, o.Alone = kube, lease.NewIdentity(), s.csiAddress != ""
	return lease.New(o)
}
