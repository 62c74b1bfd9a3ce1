package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// writeFolder makes the files those of a folder, one after the other.
func writeFolder(folder string, files map[string]string) error {
	var all error
	entries, _ := os.ReadDir(folder) // none before the first
	for _, e := range entries {
		if files[e.Name()] == "" {
			all = errors.Join(all, os.Remove(filepath.Join(folder, e.Name())))
		}
	}
	for name, content := range files {
		path := filepath.Join(folder, name)
		all = errors.Join(all, os.MkdirAll(folder, 0o700), os.WriteFile(path+".new", []byte(content), 0o600), os.Rename(path+".new", path))
	}
	return all
}

// mountFolder makes the files those of a folder at once, as the kubelet does with a ConfigMap.
func mountFolder(folder string, files map[string]string) error {
	version, err := os.MkdirTemp(filepath.Dir(folder), "version")
	if err != nil {
		return err
	}
	next := filepath.Join(folder, "..data_tmp")
	all := errors.Join(writeFolder(version, files), os.MkdirAll(folder, 0o700), os.Symlink(version, next), os.Rename(next, filepath.Join(folder, "..data")))
	for name := range files {
		if err := os.Symlink("..data/"+name, filepath.Join(folder, name)); !errors.Is(err, fs.ErrExist) {
			all = errors.Join(all, err)
		}
	}
	links, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	for _, link := range links {
		if files[filepath.Base(link)] == "" {
			err = errors.Join(err, os.Remove(link))
		}
	}
	return errors.Join(all, err)
}

func TestDriversOfGoodFilesAreServedWhileAnotherFileIsBad(t *testing.T) {
	for name, write := range map[string]func(string, map[string]string) error{"edited": writeFolder, "mounted": mountFolder} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "folder-"+name)
			folder := filepath.Join(s.dir, "drivers")
			apply := func(files map[string]string) {
				t.Helper()
				for name, content := range files {
					files[name] = testbed.ConfigHead + content
				}
				if err := write(folder, files); err != nil {
					t.Fatal(err)
				}
			}
			backends, volumes := map[string]*fakecsi.Backend{}, map[string][]testbed.Object{}
			for _, d := range []string{"a", "b", "c"} {
				driver, backend := s.serve(d, filepath.Join(s.dir, d))
				backends[d], volumes[d] = backend, s.attachments(driver, 4)
			}
			entry := func(d, socket string) string {
				return fmt.Sprintf("drivers:\n- {name: %s-%s, endpoint: \"unix://%s\"}\n", s.prefix, d, filepath.Join(s.dir, socket))
			}
			attach := func(n int, drivers ...string) {
				t.Helper()
				for _, d := range drivers {
					s.create(volumes[d][0])
					volumes[d] = volumes[d][1:]
				}
				s.waitFor(fmt.Sprintf("%d attached", n), attachedAtLeast(n))
			}
			const defaults, typo = "defaults: {workers: 4}\ndrivers: []\n", "drivers:\n- {name: b, endpoint: b.sock}\n"
			bad := filepath.Join(folder, "b.yaml")
			shown := func(server, instead string) {
				t.Helper()
				rejected := bad + " rejected; " + instead
				mistake := bad + `:4: drivers[0].endpoint: "b.sock" is not an endpoint`
				if out, _ := s.asked(rejected, "status", "--server", server); !strings.Contains(out, mistake) {
					t.Errorf("status does not name the mistake:\n%s", out)
				}
				for path, words := range map[string][]string{
					"/":                {rejected, bad + ":4: drivers[0].endpoint"},
					"/api/v1/overview": {`"rejected":"` + rejected, bad + ":4: drivers[0].endpoint"},
					"/metrics": {fmt.Sprintf(`attach_hub_config_last_reload_successful{file=%q} 0`, bad),
						fmt.Sprintf(`attach_hub_config_last_reload_successful{file=%q} 1`, filepath.Join(folder, "a.yaml"))},
				} {
					text := s.text(server + path)
					if path == "/" {
						text = textOf(text)
					}
					for _, w := range words {
						if !says(text, w) {
							t.Errorf("%s does not have %q:\n%s", path, w, text)
						}
					}
				}
			}

			apply(map[string]string{"_defaults.yaml": defaults, "a.yaml": entry("a", "a"), "b.yaml": typo})
			server := s.startVisibleHub("--config", folder)
			hub := s.hub
			logged(s, hub, "Configuration file rejected; none of its drivers is served; the other files apply")
			shown(server, "none of its drivers is served; the other files apply")
			attach(1, "a")
			apply(map[string]string{"_defaults.yaml": defaults, "a.yaml": entry("a", "a"), "b.yaml": entry("b", "b")}) // repaired
			attach(3, "a", "b")
			apply(map[string]string{"_defaults.yaml": defaults, "a.yaml": entry("a", "a"), "b.yaml": typo, "c.yaml": entry("c", "c")}) // one broken, one added
			const kept = "its drivers keep their last good configuration; the other files apply"
			attach(6, "a", "b", "c")
			logged(s, hub, `Configuration file rejected; `+kept+`" err="`+bad+`:4: `)
			shown(server, kept)
			apply(map[string]string{"_defaults.yaml": defaults, "b.yaml": typo, "c.yaml": strings.Replace(entry("c", "c"), "}", ", workers: 7}", 1)}) // one removed, one changed
			logged(s, hub, fmt.Sprintf(`"Driver is no longer configured, draining it" driver=%q`, s.prefix+"-a"))
			attach(8, "b", "c")
			s.asked(`"workers": 7`, "status", "-o", "json", "--server", server)
			apply(map[string]string{"_defaults.yaml": defaults, "b.yaml": entry("b", "b"), "c.yaml": entry("c", "c")})
			loggedTimes(s, hub, `"Configuration reloaded"`, 4)
			attach(10, "b", "c")
			for d, want := range map[string]int{"a": 3, "b": 4, "c": 3} {
				if b := backends[d].Books(); len(b.Attached) != want || b.Methods[fakecsi.GetPluginInfo].Begun != 1 {
					t.Errorf("%s: %d volumes attached by %d connections, want %d by one", d, len(b.Attached), b.Methods[fakecsi.GetPluginInfo].Begun, want)
				}
			}
			if text := s.text(server + "/metrics"); strings.Contains(text, `attach_hub_config_last_reload_successful{file="`+filepath.Join(folder, "a.yaml")) {
				t.Error("a file that is gone has a metric")
			}
			s.checkExit(hub)
		})
	}
}
