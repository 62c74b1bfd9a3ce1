package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// mountFolder makes the files those of a folder at once, as the kubelet does with a ConfigMap.
func mountFolder(folder string, files map[string]string) error {
	version, err := os.MkdirTemp(filepath.Dir(folder), "version")
	if err != nil {
		return err
	}
	next := filepath.Join(folder, "..data_tmp")
	all := errors.Join(os.MkdirAll(folder, 0o700), os.Symlink(version, next))
	for name, content := range files {
		all = errors.Join(all, os.WriteFile(filepath.Join(version, name), []byte(testbed.ConfigHead+content), 0o600))
		if err := os.Symlink("..data/"+name, filepath.Join(folder, name)); !errors.Is(err, fs.ErrExist) {
			all = errors.Join(all, err)
		}
	}
	all = errors.Join(all, os.Rename(next, filepath.Join(folder, "..data")))
	links, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	for _, link := range links {
		if files[filepath.Base(link)] == "" {
			err = errors.Join(err, os.Remove(link))
		}
	}
	return errors.Join(all, err)
}

func TestDriversOfGoodFilesAreServedWhileAnotherFileIsBad(t *testing.T) {
	s := newScene(t, "folder")
	folder := filepath.Join(s.Dir, "drivers")
	apply := func(files ...string) { // names and contents
		t.Helper()
		all := map[string]string{"_defaults.yaml": "defaults: {workers: 4}\ndrivers: []\n"}
		for i := 0; i < len(files); i += 2 {
			all[files[i]] = files[i+1]
		}
		s.must(mountFolder(folder, all))
	}
	backends, volumes, entry := map[string]*fakecsi.Backend{}, map[string][]testbed.Object{}, map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		d := s.serve(name)
		backends[name], volumes[name], entry[name] = d.Backend, s.attachments(d.Name, 4), "drivers:\n"+d.Entry("")
	}
	attach := func(n int, drivers ...string) {
		t.Helper()
		for _, d := range drivers {
			s.create(volumes[d][0])
			volumes[d] = volumes[d][1:]
		}
		s.waitFor(fmt.Sprintf("%d attached", n), attachedAtLeast(n))
	}
	const typo = "drivers:\n- {name: b, endpoint: b.sock}\n"
	bad := filepath.Join(folder, "b.yaml")
	shown := func(instead string) {
		t.Helper()
		if out := s.asked(bad+" rejected; "+instead, "status"); !strings.Contains(out, bad+`:4: drivers[0].endpoint: `) {
			t.Errorf("status does not name the mistake:\n%s", out)
		}
		for file, value := range map[string]int{bad: 0, filepath.Join(folder, "c.yaml"): 1} {
			if want := fmt.Sprintf("attach_hub_config_last_reload_successful{file=%q} %d", file, value); !strings.Contains(s.get("/metrics"), want) {
				t.Errorf("/metrics does not have %s", want)
			}
		}
	}

	apply("c.yaml", entry["c"], "b.yaml", typo)
	hub := s.startHub("--config", folder)
	s.logged(hub, "Configuration file rejected; none of its drivers is served; the other files apply", 1)
	shown("none of its drivers is served; the other files apply")
	attach(1, "c")
	apply("c.yaml", entry["c"], "b.yaml", entry["b"]) // repaired
	attach(3, "b", "c")
	apply("a.yaml", entry["a"], "b.yaml", typo, "c.yaml", entry["c"]) // one broken, one added
	const kept = "its drivers keep their last good configuration; the other files apply"
	attach(6, "a", "b", "c")
	s.logged(hub, `Configuration file rejected; `+kept+`" err="`+bad+`:4: `, 1)
	shown(kept)
	apply("b.yaml", typo, "c.yaml", strings.Replace(entry["c"], "}", ", workers: 7}", 1)) // one removed, one changed
	s.must(hub.Signal(syscall.SIGHUP))
	s.logged(hub, fmt.Sprintf(`"Driver is no longer configured, draining it" driver=%q`, s.prefix+"-a"), 1)
	attach(8, "b", "c")
	s.asked(`"workers": 7`, "status", "-o", "json")
	if strings.Contains(s.get("/metrics"), filepath.Join(folder, "a.yaml")) {
		t.Error("a file that is gone has a metric")
	}
	for name, want := range map[string]int{"a": 1, "b": 3, "c": 4} {
		if b := backends[name].Books(); len(b.Attached) != want || b.Methods[fakecsi.GetPluginInfo].Begun != 1 {
			t.Errorf("%s: %d volumes attached by %d connections, want %d by one", name, len(b.Attached), b.Methods[fakecsi.GetPluginInfo].Begun, want)
		}
	}
	s.checkExit(hub)
}
