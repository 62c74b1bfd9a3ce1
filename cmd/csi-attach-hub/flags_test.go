package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// settingsOf returns what the hub makes of its arguments.
func settingsOf(t *testing.T, args ...string) (hubSettings, error) {
	t.Helper()
	t.Setenv("POD_NAMESPACE", "of-the-pod")
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	f := newHubFlags(set)
	if err := set.Parse(withTwoDashes(args, set)); err != nil {
		return hubSettings{}, err
	}
	return f.settings()
}

// withConfig and inPlace are the settings without a flag that matters.
func withConfig() hubSettings {
	driver := registry.DefaultSettings()
	driver.Lease.Namespace = "of-the-pod"
	return hubSettings{
		config: "c", shutdownGrace: 30 * time.Second, driver: driver,
		leases: leaseSettings{true, lease.Options{Namespace: "of-the-pod", Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 5 * time.Second}},
		http:   httpSettings{[]string{":8080"}, status.Options{MetricsPath: "/metrics"}},
	}
}

func inPlace(socket registry.Endpoint) hubSettings {
	s := withConfig()
	s.config, s.csiAddress = "", socket
	s.leases.Enabled, s.http.Addresses = false, nil
	s.driver.Timeout, s.driver.Workers, s.driver.Drift.PageSize = 15*time.Second, 10, 0
	s.driver.Retry = registry.Retry{Initial: time.Second, Max: 5 * time.Minute}
	return s
}

func TestFlagsOfManifestsMeanWhatTheyMeanToCSIAttacher(t *testing.T) {
	for _, test := range []struct {
		name, args string
		want       func() hubSettings
	}{
		{"config", "--config=c", withConfig},
		{"config with flags of csi-attacher", "--config=c --timeout=3m --worker-threads=50 --reconcile-sync=0 --volume-attachment-timeout 1h --leader-election=false", func() hubSettings {
			s := withConfig()
			s.driver.Timeout, s.driver.Workers, s.driver.Drift.Interval, s.driver.StuckAfter = 3*time.Minute, 50, 0, time.Hour
			s.leases.Enabled = false
			return s
		}},
		{"Mayastor", "--csi-address=/var/lib/csi/sockets/pluginproxy/csi.sock", func() hubSettings {
			return inPlace("unix:///var/lib/csi/sockets/pluginproxy/csi.sock")
		}},
		{"EBS", "--timeout=6m --csi-address=/csi/csi.sock --v=2 --default-fstype=ext4 --leader-election=true --kube-api-qps=20 --kube-api-burst=100 --worker-threads=100 --retry-interval-max=30m",
			func() hubSettings {
				s := inPlace("unix:///csi/csi.sock")
				s.leases.Enabled = true
				s.driver.Timeout, s.driver.Workers, s.driver.Retry.Max = 6*time.Minute, 100, 30*time.Minute
				s.driver.DefaultFSType = "ext4"
				s.driver.KubeAPI = registry.KubeAPI{QPS: 20, Burst: 100}
				return s
			}},
		{"Azure disk, with one dash", "-v=2 -csi-address=/csi/csi.sock -timeout=1200s -leader-election --leader-election-namespace=kube-system -worker-threads=1000 -kube-api-qps=200 -kube-api-burst=400",
			func() hubSettings {
				s := inPlace("unix:///csi/csi.sock")
				s.leases.Enabled, s.leases.Namespace = true, "kube-system"
				s.driver.Timeout, s.driver.Workers = 20*time.Minute, 1000
				s.driver.KubeAPI, s.driver.Lease.Namespace = registry.KubeAPI{QPS: 200, Burst: 400}, "kube-system"
				return s
			}},
		{"vSphere", "--v=4 --timeout=300s --csi-address unix:///csi//csi.sock --leader-election --leader-election-lease-duration=120s --leader-election-renew-deadline=60s --leader-election-retry-period=30s --kube-api-qps=100 --kube-api-burst=100",
			func() hubSettings {
				s := inPlace("unix:///csi/csi.sock")
				s.leases = leaseSettings{true, lease.Options{Namespace: "of-the-pod", Duration: 2 * time.Minute, RenewDeadline: time.Minute, RetryPeriod: 30 * time.Second}}
				s.driver.Timeout = 5 * time.Minute
				s.driver.KubeAPI = registry.KubeAPI{QPS: 100, Burst: 100}
				return s
			}},
		{"Ceph RBD", "--v=1 --csi-address=/csi/csi-provisioner.sock --leader-election=true --retry-interval-start=500ms --default-fstype=ext4 --http-endpoint=:8093", func() hubSettings {
			s := inPlace("unix:///csi/csi-provisioner.sock")
			s.leases.Enabled, s.http.Addresses = true, []string{":8093"}
			s.driver.Retry.Initial, s.driver.DefaultFSType = 500*time.Millisecond, "ext4"
			return s
		}},
		{"every flag that has no meaning", "--csi-address=/s --resync=10m --max-grpc-log-length=-1 --automaxprocs --feature-gates=ReleaseLeaderElectionOnExit=true", func() hubSettings {
			s := inPlace("unix:///s")
			for _, one := range ignored {
				s.warnings = append(s.warnings, "--"+one.flag+" has no effect: "+one.why)
			}
			return s
		}},
		{"log of request bodies", "--csi-address=/s --v=10 --vmodule=request=8,worker=7", func() hubSettings {
			s := inPlace("unix:///s")
			for _, flag := range []string{"--v=10", "--vmodule request=8"} {
				s.warnings = append(s.warnings, flag+" is taken as 7: above it, requests to the Kubernetes API would be logged with the Secrets and tokens in them")
			}
			return s
		}},
		{"no limit, and a burst of that", "--csi-address=/s --kube-api-qps=-1 --kube-api-burst=5", func() hubSettings {
			s := inPlace("unix:///s")
			s.driver.KubeAPI.Burst = 5
			s.warnings = []string{"--kube-api-burst has no effect without --kube-api-qps: writes are not limited"}
			return s
		}},
		{"first wait above the longest", "--csi-address=/s --retry-interval-start=10m", func() hubSettings {
			s := inPlace("unix:///s")
			s.driver.Retry.Initial = 5 * time.Minute
			return s
		}},
		{"labels", "--csi-address=/s --leader-election-labels=app:x,example.com/team:storage,empty:", func() hubSettings {
			s := inPlace("unix:///s")
			s.leases.Labels = map[string]string{"app": "x", "example.com/team": "storage", "empty": ""}
			return s
		}},
		{"times of leases that are off", "--csi-address=/s --leader-election-retry-period=1m", func() hubSettings {
			s := inPlace("unix:///s")
			s.leases.RetryPeriod = time.Minute
			return s
		}},
		{"older names", "--config=c --metrics-address=:1 --health-addr=:2 --metrics-path=/m --http-allowed-hosts=a.b,c --profiling", func() hubSettings {
			s := withConfig()
			s.http = httpSettings{[]string{":1", ":2"}, status.Options{MetricsPath: "/m", AllowedHosts: []string{"a.b", "c"}, Profiling: true}}
			return s
		}},
		{"profiles without HTTP", "--csi-address=/s --profiling", func() hubSettings {
			s := inPlace("unix:///s")
			s.http.Profiling = true
			return s
		}},
		{"one address under two names", "--csi-address=/s --metrics-addr=:1 --health-addr=:1", func() hubSettings {
			s := inPlace("unix:///s")
			s.http.Addresses = []string{":1"}
			return s
		}},
		{"no HTTP", "--config=c --http-endpoint=", func() hubSettings {
			s := withConfig()
			s.http.Addresses = nil
			return s
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := settingsOf(t, strings.Split(test.args, " ")...)
			if err != nil {
				t.Fatal(err)
			}
			got.logging = nil // its flags are component-base's
			if diff := cmp.Diff(test.want(), got, cmp.AllowUnexported(hubSettings{})); diff != "" {
				t.Errorf("the settings differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMistakesInFlagsAreToldAtOnce(t *testing.T) {
	for _, test := range []struct {
		name, args string
		want       []string // of each line of the error, a part
	}{
		{"all at once", "--config=c --csi-address=csi.sock --shutdown-grace=-1s --timeout=-1s --worker-threads=0 --kube-api-qps=1000000 --leader-election-labels=a --metrics-path=m",
			[]string{"--shutdown-grace must not be negative", "--csi-address: ", "--csi-address and --config cannot both be given",
				`--leader-election-labels: "a" is not a valid label`, "--timeout: must be a duration from 1ms to 24h", "--worker-threads: must be a whole number from 1 to 10000",
				"--kube-api-qps: must be 0 for no limit", "--metrics-path: "}},
		{"empty socket", "--csi-address=", []string{"--csi-address is empty"}},
		{"socket that is none", "--csi-address=tcp://csi:9443", []string{"--csi-address: must be a unix socket"}},
		{"older names beside the new one", "--http-endpoint=:1 --metrics-address=:1", []string{"--http-endpoint and --metrics-address mean the same"}},
		{"addresses", "--metrics-addr=8080 --health-addr=:http", []string{`--metrics-addr: "8080" is not an address`, `--health-addr: "http" is not a port`}},
		{"hosts", "--config=c --http-allowed-hosts=a:80,b,*.c", []string{`--http-allowed-hosts: "a:80" is not a host name`, `"*.c" is not a host name`}},
		{"path of the metrics that is taken", "--metrics-path=/api/v1/drivers", []string{`--metrics-path: the metrics path "/api/v1/drivers" is taken`}},
		{"lease that is shorter than its renewal", "--leader-election-lease-duration=10s", []string{"--leader-election-renew-deadline is 10s: it must be below the lease duration"}},
		{"lease of half a second", "--leader-election-lease-duration=10500ms", []string{"must be whole seconds"}},
		{"renewal that client-go can miss", "--leader-election-renew-deadline=6s", []string{"it must be above 1.2 times the retry period, which makes 6s"}},
		{"no renewal", "--leader-election-retry-period=0", []string{"--leader-election-retry-period is 0s: it must be positive"}},
		{"namespace", "--leader-election-namespace=Kube_System", []string{`"Kube_System" is not a valid namespace`}},
		{"labels", "--leader-election-labels=a:b,a:c,/:x,ok:y,attach-hub/replica:true", []string{"the key is listed twice", `"/:x" is not a valid label`, "the hub sets itself"}},
		{"unknown flag", "--csi-address=/s --connection-timeout=1s", []string{"unknown flag: --connection-timeout"}},
		{"gate that is none", "--feature-gates=x", []string{"invalid argument"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := settingsOf(t, strings.Split(test.args, " ")...)
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			for i, want := range test.want {
				if i >= len(lines) || !strings.Contains(lines[i], want) {
					t.Errorf("line %d does not say %q", i, want)
				}
			}
			if len(lines) != len(test.want) || t.Failed() {
				t.Errorf("got %d lines, want %d:\n%v", len(lines), len(test.want), err)
			}
		})
	}
}

func TestNamespaceOfLeasesIsThatOfThePod(t *testing.T) {
	file := filepath.Join(t.TempDir(), "namespace")
	if got := podNamespace("", file); got != "default" {
		t.Errorf("got %s, want default", got)
	}
	write(t, file, "storage\n")
	if got := podNamespace("", file); got != "storage" {
		t.Errorf("got %s, want that of the file", got)
	}
	if got := podNamespace("environment", file); got != "environment" {
		t.Errorf("got %s, want that of the environment", got)
	}
}

func TestDashesAreLeftAloneWhereTheyMeanSomethingElse(t *testing.T) {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	newHubFlags(set)
	args := strings.Split("-v 2 -v=2 --timeout -1s -nothing -leader-election=true - -- -timeout=1s", " ")
	want := strings.Split("-v 2 -v=2 --timeout -1s -nothing --leader-election=true - -- -timeout=1s", " ")
	if diff := cmp.Diff(want, withTwoDashes(args, set)); diff != "" {
		t.Errorf("the arguments differ (-want +got):\n%s", diff)
	}
}
