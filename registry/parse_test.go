package registry_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const header = "apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\n"

func TestSettingsComeFromTheEntryThenDefaultsThenTheProgram(t *testing.T) {
	const drivers = `drivers:
  - name: ebs.csi.aws.com
    endpoint: unix:///csi/ebs/csi.sock
    timeout: 6m
    retry: {max: 1h30m}
    defaultFSType: ""
  - name: nfs.csi.k8s.io
    endpoint: unix:///csi/nfs/csi.sock
`
	const defaults = `defaults:
  workers: 7
  retry:
    initial: 2s
  defaultFSType: ext4
  drift: {interval: 5m}
`
	settings := func(timeout time.Duration, retryMax time.Duration, fsType string) registry.Settings {
		s := registry.DefaultSettings()
		s.Timeout, s.Workers, s.DefaultFSType = timeout, 7, fsType
		s.Retry = registry.Retry{Initial: 2 * time.Second, Max: retryMax}
		s.Drift.Interval = 5 * time.Minute
		return s
	}
	for _, test := range []struct {
		name, file, source0, source1 string
	}{
		{"defaults first", header + defaults + drivers, "f.yaml:10", "f.yaml:15"},
		{"defaults last", header + drivers + defaults, "f.yaml:4", "f.yaml:9"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, err := registry.Parse("f.yaml", []byte(test.file))
			check(t, err)
			want := registry.Snapshot{
				"ebs.csi.aws.com": {Name: "ebs.csi.aws.com", Endpoint: "unix:///csi/ebs/csi.sock",
					Settings: settings(6*time.Minute, 90*time.Minute, ""), Source: test.source0},
				"nfs.csi.k8s.io": {Name: "nfs.csi.k8s.io", Endpoint: "unix:///csi/nfs/csi.sock",
					Settings: settings(2*time.Minute, time.Minute, "ext4"), Source: test.source1},
			}
			if diff := cmp.Diff(want, config.Drivers()); diff != "" {
				t.Errorf("the drivers differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSpellingsOfAValidFileAreEqual(t *testing.T) {
	valid := header + "drivers:\n- name: a\n  endpoint: unix:///a\n"
	for name, file := range map[string]string{
		"as usual":         valid,
		"byte order mark":  "\ufeff" + valid,
		"CRLF":             strings.ReplaceAll(valid, "\n", "\r\n"),
		"document markers": "---\n" + valid + "...\n",
		"comments":         "# one\n" + strings.ReplaceAll(valid, "\n", " # each\n"),
		"JSON":             `{"apiVersion": "attach-hub/v1alpha1", "kind": "DriverConfig", "drivers": [{"name": "a", "endpoint": "unix:///a"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			config, err := registry.Parse("f.yaml", []byte(file))
			check(t, err)
			want := registry.Driver{Name: "a", Endpoint: "unix:///a", Settings: registry.DefaultSettings()}
			got := config.Drivers()["a"]
			got.Source = ""
			if len(config.Drivers()) != 1 || got != want {
				t.Errorf("got %+v, want only %+v", config.Drivers(), want)
			}
		})
	}
}

func TestValuesAtTheEdgeOfTheirRangeAreTaken(t *testing.T) {
	name := strings.Repeat("a.", 31) + "Z"
	config, err := registry.Parse("f.yaml", []byte(header+`drivers:
  - {name: `+name+`, endpoint: "unix:///a", timeout: 1ms, workers: 1, retry: {initial: 24h, max: 24h}}
  - {name: 0-0, endpoint: "unix:///b", timeout: 24h, workers: 10000, retry: {initial: 1ms, max: 1ms}}
`))
	check(t, err)
	d := config.Drivers()[name]
	if len(name) != 63 || d.Workers != 1 || d.Retry.Initial != d.Retry.Max {
		t.Errorf("got %+v", d)
	}
}

func TestDriftIsTurnedOffByNothingInAnyUnit(t *testing.T) {
	for _, off := range []string{"0", `"0"`, "0s", "0h0m"} {
		config, err := registry.Parse("f.yaml", []byte(header+"drivers: [{name: a, endpoint: 'unix:///a', drift: {interval: "+off+"}}]"))
		if err != nil {
			t.Errorf("interval: %s: %v", off, err)
		} else if got := config.Drivers()["a"].Drift.Interval; got != 0 {
			t.Errorf("interval: %s is read as %s", off, got)
		}
	}
}

func TestDriftAndLimitsAreReadAsWritten(t *testing.T) {
	config, err := registry.Parse("f.yaml", []byte(header+`drivers:
  - name: a
    endpoint: unix:///a
    maxPerNode: 3
    parallelMultiNode: false
    stuckAfter: 1h
    secrets: [ns/creds, a/b.c, ns/*]
    drift: {interval: 1s, pageSize: 0, action: report, unexpected: detach}
`))
	check(t, err)
	want := registry.DefaultSettings()
	want.MaxPerNode, want.ParallelMultiNode, want.StuckAfter, want.Secrets = 3, false, time.Hour, "a/b.c,ns/*,ns/creds"
	want.Drift = registry.Drift{Interval: time.Second, Action: registry.DriftReport, Unexpected: registry.UnexpectedDetach}
	if diff := cmp.Diff(want, config.Drivers()["a"].Settings); diff != "" {
		t.Errorf("the settings differ (-want +got):\n%s", diff)
	}
}

func TestFileThatIsNoneIsOneError(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	for _, test := range []struct{ name, path, want string }{
		{"missing", filepath.Join(dir, "missing"), "file does not exist: correct the path or create the file"},
		{"a directory", dir, "the folder has no *.yaml: write one with drivers: [] for no drivers"},
		{"empty", write("empty", ""), "the configuration is empty: write apiVersion: attach-hub/v1alpha1, kind: DriverConfig and drivers: [] for no drivers"},
		{"too large", write("large", header+"drivers: []\n#"+strings.Repeat("x", 4<<20)), "the file has more than 4194304 bytes, which is the limit"},
		{"binary", write("binary", header+"drivers: [\x00]\n"), "3: invalid YAML: control characters are not allowed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, err := registry.ParseFile(test.path)
			list, ok := errors.AsType[registry.Errors](err)
			if config != nil || !ok || len(list) != 1 {
				t.Fatalf("got %v and %T %v, want one of Errors", config, err, err)
			}
			if got := strings.TrimPrefix(strings.TrimPrefix(err.Error(), test.path+":"), " "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestDurationsAreWrittenAsUsersWriteThem(t *testing.T) {
	for d, want := range map[time.Duration]string{2 * time.Minute: "2m", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", time.Hour: "1h", time.Hour + time.Second: "1h0m1s", 0: "0"} {
		if got := registry.FormatDuration(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

var update = flag.Bool("update", false, "write what Parse says of testdata/*.yaml into testdata/*.errors")

// Each testdata/x.yaml has mistakes; testdata/x.errors is what users are told of them.
func TestEveryMistakeOfAFileIsReported(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			check(t, err)
			_, err = registry.Parse("drivers.yaml", data)
			if _, ok := errors.AsType[registry.Errors](err); !ok {
				t.Fatalf("got %v (%T), want Errors", err, err)
			}
			got := err.Error() + "\n"
			golden := strings.TrimSuffix(file, ".yaml") + ".errors"
			if *update {
				check(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			check(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the errors differ (-want +got):\n%s", diff)
			}
		})
	}
}
