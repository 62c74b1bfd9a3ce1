package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// givenSettings are the settings for which flags were given.
func givenSettings(f adopt.Flags) []adopt.Setting {
	return slices.DeleteFunc(f.Settings, func(s adopt.Setting) bool { return s.Flag == "csi-attacher's default" })
}

// The driver gets the load that it had.
func TestDefaultsOfCsiAttacherThatAreNotTheHubsBecomeSettings(t *testing.T) {
	f, err := sidecarFlags([]string{"--timeout=6m", "--retry-interval-start=10m"})
	var got []string
	for _, s := range f.Settings {
		got = append(got, s.Key+": "+s.Value)
	}
	if want := "timeout: 6m, retry.initial: 5m, workers: 10, retry.max: 5m, drift.pageSize: 0"; err != nil || strings.Join(got, ", ") != want {
		t.Errorf("%v, %v; want %s", got, err, want)
	}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	s := registry.DefaultSettings()
	addDriverFlags(set, &s)
	for _, d := range csiAttacherDefaults {
		name, value, _ := strings.Cut(d, "=")
		if err := set.Set(name, value); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(csiAttacherSettings(), s); diff != "" {
		t.Errorf("they differ from those of --csi-address (-want +got):\n%s", diff)
	}
}

func TestFlagsOfASidecarBecomeSettings(t *testing.T) {
	for args, want := range map[string]string{
		"--timeout=6m":                          "timeout: 6m",
		"-timeout=1h0m0s":                       "timeout: 1h",
		"--timeout 1h10m":                       "timeout: 1h10m",
		"-worker-threads 7":                     "workers: 7",
		"--retry-interval-max=30m":              "retry.max: 30m",
		"--reconcile-sync=30m0s":                "drift.interval: 30m",
		"--max-entries=9":                       "drift.pageSize: 9",
		"--default-fstype=xfs":                  "defaultFSType: xfs",
		"--default-fstype=":                     `defaultFSType: ""`,
		"--kube-api-qps=2.5 --kube-api-burst=9": "kubeAPI.qps: 2.5, kubeAPI.burst: 9",
		"--retry-interval-start=10m --retry-interval-max=5m": "retry.initial: 5m, retry.max: 5m",
	} {
		f, err := sidecarFlags(strings.Fields(args))
		var got []string
		for _, s := range givenSettings(f) {
			got = append(got, s.Key+": "+s.Value)
		}
		if err != nil || strings.Join(got, ", ") != want || len(f.Other)+len(f.Unknown) > 0 {
			t.Errorf("%s: %q, %v, others %v, unknown %q; want %s", args, got, err, f.Other, f.Unknown, want)
		}
	}
}

func TestFlagsOfASidecarThatChangeNothingAreLeftOut(t *testing.T) {
	for _, args := range []string{"-v=5", "-v 5", "-v5", "--resync=1m", "--leader-election-labels=a:b", "--v=$(LEVEL)", "--log-text-info-buffer-size 1Mi"} {
		f, err := sidecarFlags(strings.Fields(args))
		if err != nil || len(f.Other)+len(givenSettings(f))+len(f.Unknown) > 0 {
			t.Errorf("%s: %+v, %v", args, f, err)
		}
	}
}

func TestFlagsOfASidecarThatNoSettingCanHaveAreNamedWithTheReason(t *testing.T) {
	for args, want := range map[string]string{
		"--kube-api-burst=100": "--kube-api-burst=100: without --kube-api-qps the hub has no limit",
		"--kube-api-qps=-1":    "--kube-api-qps=-1: it means no limit",
		"--worker-threads=0":   "--worker-threads=0: workers of the configuration cannot have this value",
		"--timeout=-1s":        "--timeout=-1s: timeout of the configuration cannot have this value",
	} {
		f, err := sidecarFlags(strings.Fields(args))
		if err != nil || len(f.Other) != 1 || !strings.HasPrefix(f.Other[0], want) || len(givenSettings(f))+len(f.Unknown) > 0 {
			t.Errorf("%s: %+v, %v; want %s", args, f, err, want)
		}
	}
}

func TestUnknownFlagsOfASidecarAreListed(t *testing.T) {
	for args, want := range map[string][]string{
		"--new-flag --timeout=1m":                    {"--new-flag"},
		"--dummy -timeout 1m":                        {"--dummy"}, // of csi-attacher before 2.0, which the hub refuses
		"--leader-election-type=leases --timeout=1m": {"--leader-election-type=leases"},
		"--new-flag value --timeout=1m":              {"--new-flag value"},
		"-new-flag=value --timeout=1m":               {"-new-flag=value"},
		"controller --timeout=1m":                    {"controller"},
		"$(MORE) --timeout=1m":                       {"$(MORE)"},
		"--config=/a --timeout=1m":                   {"--config=/a"},
		"--timeout=1m -- --worker-threads":           {"--", "--worker-threads"},
	} {
		f, err := sidecarFlags(strings.Fields(args))
		if err != nil || !slices.Equal(f.Unknown, want) || len(givenSettings(f)) != 1 {
			t.Errorf("%s: unknown %q, settings %v, %v; want %q", args, f.Unknown, f.Settings, err, want)
		}
	}
}

func TestWrongValuesOfASidecarAreAllNamed(t *testing.T) {
	_, err := sidecarFlags([]string{"--timeout=soon", "--worker-threads=many", "--leader-election=perhaps", "--leader-election-namespace=A_B", "--v=high", "--timeout=$(T)"})
	for _, want := range []string{`"soon" for "--timeout"`, `"many" for "--worker-threads"`, `"perhaps" for "--leader-election"`, `--leader-election-namespace: "A_B"`, `"high" for "-v, --v"`, `"$(T)" for "--timeout"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not have %s: %v", want, err)
		}
	}
}

func TestFlagsOfASidecarThatDecideHowItMoves(t *testing.T) {
	f, err := sidecarFlags([]string{"-csi-address", "/csi/csi.sock", "-leader-election", "--leader-election-namespace=storage", "--leader-election-lease-duration=137s",
		"--kubeconfig=/k", "--metrics-address=:1", "--leader-election-type=configmaps"})
	if err != nil || f.Address != "/csi/csi.sock" || !f.LeaderElection || f.LeaseNamespace != "storage" || f.LeaseDuration.Seconds() != 137 ||
		f.Kubeconfig != "/k" || !strings.Contains(strings.Join(f.Other, ""), "--http-endpoint=:1: its metrics end") || f.LockType != "configmaps" {
		t.Errorf("%+v, %v", f, err)
	}
	none, err := sidecarFlags(nil)
	if err != nil || none.LeaderElection || len(none.Other) > 0 || none.LeaseDuration.Seconds() != 15 {
		t.Errorf("%+v, %v; want csi-attacher's defaults", none, err)
	}
}
