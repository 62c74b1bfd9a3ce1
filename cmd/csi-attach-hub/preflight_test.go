package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/preflight"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// preflightScene is a cluster with drivers in this process.
type preflightScene struct {
	*scene
	file string // drivers.yaml
}

func newPreflightScene(t *testing.T, prefix string) *preflightScene {
	t.Helper()
	s := &preflightScene{scene: newScene(t, prefix)}
	s.file = filepath.Join(s.dir, "drivers.yaml")
	return s
}

// run runs preflight with the administrator's rights, and returns the report of -o json.
func (s *preflightScene) run(args ...string) (r preflight.Report, stderr string, code int) {
	s.t.Helper()
	write(s.t, s.file, s.config.String())
	out, stderr, code := runHere(append([]string{"preflight", "-o", "json", "--config", s.file, "--kubeconfig", s.plane.Kubeconfig()}, args...)...)
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); out != "" && err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return r, stderr, code
}

func driverNames(r preflight.Report) []string {
	var names []string
	for _, d := range r.Drivers {
		names = append(names, d.Name)
	}
	return names
}

func TestPreflightExitCodeSaysWhetherADriverFails(t *testing.T) {
	s := newPreflightScene(t, "preflight")
	fine, socket := s.entry("fine")
	away, _ := s.entry("away")
	backend := testbed.DriverForTest(t, fine, socket).Backend
	s.create(s.attachments(fine, 1)...)

	r, stderr, code := s.run()
	if code != 1 || stderr != "" || !slices.Equal(driverNames(r), []string{away, fine}) || r.Result != preflight.Failed {
		t.Errorf("exit code %d, stderr %q: %+v", code, stderr, r)
	}
	if r, _, code := s.run("--driver", fine); code != 0 || len(r.Drivers) != 1 || r.Drivers[0].Result == preflight.Failed {
		t.Errorf("--driver %s: exit code %d: %+v", fine, code, r)
	}
	if books := backend.Books(); books.Methods[fakecsi.ControllerPublishVolume].Begun+books.Methods[fakecsi.ControllerUnpublishVolume].Begun > 0 {
		t.Error("a volume was attached or detached")
	}
	out, _, code := runHere("preflight", "--config", s.file, "--kubeconfig", s.plane.Kubeconfig())
	if code != 1 || !strings.Contains(out, away+" at unix://") || !strings.Contains(out, "failed   connect") {
		t.Errorf("exit code %d:\n%s", code, out)
	}

	write(t, s.file, configMap(s.config.String()))
	out, _, code = runHere("preflight", "-o", "json", "--driver", fine, "--config", s.file, "--kubeconfig", s.plane.Kubeconfig())
	if code != 0 || !strings.Contains(out, fine) {
		t.Errorf("a ConfigMap: exit code %d:\n%s", code, out)
	}
}

func TestPreflightChecksDiscoveredDrivers(t *testing.T) {
	s := newPreflightScene(t, "preflight-found")
	found, socket := s.prefix+"-annotated", filepath.Join(s.dir, "annotated")
	testbed.DriverForTest(t, found, socket)
	atSocket := s.prefix + "-socket"
	testbed.DriverForTest(t, atSocket, filepath.Join(s.dir, "found.sock"))
	s.config.Reset()
	fmt.Fprintf(&s.config, "%sdiscovery:\n  sockets: [%q]\n  csiDrivers: {enabled: true, allowedEndpoints: [\"unix://%s/*\"]}\ndrivers: []\n",
		testbed.ConfigHead, filepath.Join(s.dir, "*.sock"), s.dir)
	refused, unneeded := s.prefix+"-refused", s.prefix+"-unneeded"
	makeCSIDrivers(t, s.plane, testbed.CSIDriver{Name: found, Annotations: map[string]string{"attach-hub/endpoint": "unix://" + socket}},
		testbed.CSIDriver{Name: refused, Annotations: map[string]string{"attach-hub/endpoint": "unix:///elsewhere"}},
		testbed.CSIDriver{Name: unneeded, NoAttach: true, Annotations: map[string]string{"attach-hub/endpoint": "unix://" + s.dir + "/no"}})
	r, stderr, code := s.run()
	names := driverNames(r)
	slices.Sort(names)
	if code != 0 || stderr != "" || !slices.Equal(names, []string{found, atSocket}) {
		t.Errorf("exit code %d, stderr %q, drivers %v", code, stderr, names)
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], refused) {
		t.Errorf("notes %q, want one about %s", r.Notes, refused)
	}
}

func TestPreflightSocketNeedsNeitherConfigurationNorCluster(t *testing.T) {
	socket := filepath.Join(testbed.ShortTempDir(t), "s")
	d := testbed.DriverForTest(t, "asked.example.com", socket)
	for _, written := range []string{"unix://" + socket, socket} {
		out, stderr, code := runHere("preflight", "--socket", written)
		if code != 0 || stderr != "" || !strings.Contains(out, "asked.example.com at unix://") || !strings.Contains(out, "PUBLISH_UNPUBLISH_VOLUME") {
			t.Errorf("%s: exit code %d, stderr %q:\n%s", written, code, stderr, out)
		}
	}
	d.Server.Crash()
	if out, _, code := runHere("preflight", "--socket", socket); code != 1 || !strings.Contains(out, "connection refused") {
		t.Errorf("nobody listens: exit code %d:\n%s", code, out)
	}
}

func TestPreflightWithNothingToCheckHasItsExitCode(t *testing.T) {
	dir := t.TempDir()
	file, bad, empty := filepath.Join(dir, "drivers.yaml"), filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "empty.yaml")
	write(t, file, doubtful)
	write(t, bad, "drivers: 1\n")
	write(t, empty, testbed.ConfigHead+"drivers: []\n")
	nowhere := filepath.Join(dir, "no-kubeconfig")
	for args, words := range map[string]string{
		"":                                  defaultConfig + "|--config",
		"--config " + bad:                   "drivers: must be a list",
		"--config " + file + " -o yaml":     "--output|table or json",
		"--config " + file + " --timeout 0": "--timeout must be positive",
		"--config " + file + " --socket /s": "--socket and --config",
		"--socket tcp://a:1":                "--socket|must be a unix socket",
		"--no-such-flag":                    "no-such-flag",
		"driver":                            "driver",
		"--kubeconfig " + nowhere + " --config " + file:  nowhere,
		"--leader-election-namespace A --config " + file: "--leader-election-namespace",
	} {
		out, stderr, code := runHere(append([]string{"preflight"}, strings.Fields(args)...)...)
		if code != exitUnchecked || out != "" {
			t.Errorf("%s: exit code %d, stdout %q", args, code, out)
		}
		for word := range strings.SplitSeq(words, "|") {
			if !strings.Contains(stderr, word) {
				t.Errorf("%s: %q is not in %q", args, word, stderr)
			}
		}
	}
	kubeconfig := testbed.Shared(t).Kubeconfig()
	if _, stderr, code := runHere("preflight", "--kubeconfig", kubeconfig, "--config", file, "--driver", "aa"); code != exitUnchecked || !strings.Contains(stderr, `"aa" is not in the configuration`) {
		t.Errorf("unknown driver: exit code %d, stderr %q", code, stderr)
	}
	if out, _, code := runHere("preflight", "--kubeconfig", kubeconfig, "--config", empty); code != exitUnchecked || !strings.Contains(out, "No driver was checked") {
		t.Errorf("no driver: exit code %d:\n%s", code, out)
	}
	var stdout bytes.Buffer
	c := newPreflightCommand()
	c.SetArgs([]string{"--config", "-", "--kubeconfig", kubeconfig})
	c.SetIn(strings.NewReader(doubtful))
	c.SetOut(&stdout)
	if err := c.Execute(); exitCode(err) != 1 || !strings.Contains(stdout.String(), "stdin:4: warning") {
		t.Errorf("stdin: %v:\n%s", err, stdout.String())
	}
}
