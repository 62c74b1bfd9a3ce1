package registry_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// folder is a folder of drivers that a test changes.
type folder struct {
	t    *testing.T
	path string
	file *registry.File
}

// newFolder makes a folder with files, by name and content. A File reads it if one is asked for.
func newFolder(t *testing.T, files map[string]string) *folder {
	t.Helper()
	f := &folder{t: t, path: t.TempDir()}
	f.write(files)
	return f
}

func (f *folder) open() *folder {
	f.t.Helper()
	file, err := registry.NewFile(f.path, registry.DefaultSettings())
	check(f.t, err)
	f.file = file
	return f
}

// write writes files; "" removes one.
func (f *folder) write(files map[string]string) {
	f.t.Helper()
	for name, content := range files {
		if content == "" {
			check(f.t, os.Remove(filepath.Join(f.path, name)))
		} else {
			write(f.t, filepath.Join(f.path, name), content)
		}
	}
}

// holds checks which drivers hold, as NAME@ENDPOINT, and which files are reported.
func (f *folder) holds(want, bad string) {
	f.t.Helper()
	var got []string
	for name, d := range f.file.Config().Drivers() {
		got = append(got, name+"@"+d.Endpoint.Address())
	}
	slices.Sort(got)
	wrong := map[string]bool{}
	status := f.file.Status()
	for _, e := range status.Errors {
		wrong[filepath.Base(e.File)] = true
	}
	if text := strings.Join(got, " "); text != want {
		f.t.Errorf("these drivers hold: %s, want %s; errors %v", text, want, status.Errors)
	}
	if text := strings.Join(slices.Sorted(maps.Keys(wrong)), " "); text != bad || (status.Errors == nil) != (bad == "") {
		f.t.Errorf("these files are reported: %q, want %q: %v", text, bad, status.Errors)
	}
}

// driver is a file with one driver.
func driver(name, endpoint string, more ...string) string {
	return header + strings.Join(more, "") + fmt.Sprintf("drivers: [{name: %s, endpoint: \"unix://%s\"}]\n", name, endpoint)
}

const typo = header + "drivers: [{name: a, endpoint: a.sock}]\n"

func TestFilesOfAFolderAreOneConfiguration(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": driver("a", "/a"), "b.yaml": driver("b", "/b"), "README.md": "no", ".hidden.yaml": "no"}).open()
	f.holds("a@/a b@/b", "")
	for _, step := range []struct {
		what      string
		files     map[string]string
		want, bad string
	}{
		{"added", map[string]string{"c.yaml": driver("c", "/c")}, "a@/a b@/b c@/c", ""},
		{"changed", map[string]string{"c.yaml": driver("c", "/c2")}, "a@/a b@/b c@/c2", ""},
		{"broken", map[string]string{"a.yaml": typo}, "a@/a b@/b c@/c2", "a.yaml"},
		{"another one changed meanwhile", map[string]string{"c.yaml": driver("c", "/c3"), "b.yaml": ""}, "a@/a c@/c3", "a.yaml"},
		{"empty", map[string]string{"c.yaml": "\n"}, "a@/a c@/c3", "a.yaml c.yaml"},
		{"another name", map[string]string{"a.yml": driver("d", "/d")}, "a@/a c@/c3", "a.yaml a.yml c.yaml"},
		{"repaired", map[string]string{"a.yaml": driver("a", "/a2"), "c.yaml": driver("c", "/c3"), "a.yml": ""}, "a@/a2 c@/c3", ""},
		{"removed", map[string]string{"c.yaml": ""}, "a@/a2", ""},
		{"all removed", map[string]string{"a.yaml": ""}, "a@/a2", filepath.Base(f.path)},
		{"back", map[string]string{"a.yaml": driver("a", "/a")}, "a@/a", ""},
	} {
		t.Log(step.what)
		f.write(step.files)
		f.file.Read()
		f.holds(step.want, step.bad)
	}
	check(t, os.Rename(f.path, f.path+"-gone"))
	f.file.Read()
	f.holds("a@/a", filepath.Base(f.path))
	check(t, os.Rename(f.path+"-gone", f.path))
}

func TestWhatHoldsInsteadOfABadFileIsSaid(t *testing.T) {
	f := newFolder(t, map[string]string{"_.yaml": header + "defaults: {}\ndrivers: []\n", "a.yaml": driver("a", "/a"), "b.yaml": driver("b", "/b"), "c.yaml": typo}).open()
	says := func(want ...string) {
		t.Helper()
		var got []string
		for _, s := range f.file.Status().Files {
			if s.Rejected != "" {
				got = append(got, strings.ReplaceAll(s.Rejected, f.path+"/", ""))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	says("c.yaml rejected; none of its drivers is served; the other files apply")
	f.write(map[string]string{"a.yaml": header + "drivers: [{name: a, endpoint: a.sock, worker: 1}]\n", "c.yaml": driver("b", "/c")})
	f.file.Read()
	says("a.yaml rejected; its drivers keep their last good configuration; the other files apply",
		"c.yaml rejected; what another file says too stays as it was; all else applies")
	f.write(map[string]string{"_.yaml": header + "defaults: {workers: 0}\ndrivers: []\n", "c.yaml": header + "drivers: []\n"})
	f.file.Read()
	says("_.yaml rejected; the previous configuration stays active", "a.yaml rejected; the previous configuration stays active")
	f.write(map[string]string{"_.yaml": "", "a.yaml": "", "b.yaml": "", "c.yaml": ""})
	f.file.Read()
	says(f.path + " rejected; the previous configuration stays active")
	f.write(map[string]string{"b.yaml": driver("b", "/b")})
	f.file.Read()
	says()
	f.write(map[string]string{"b.yaml": typo})
	f.file.Read()
	says("b.yaml rejected; the previous configuration stays active")
}

func TestBadFileServesNothingAtAStart(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": typo, "b.yaml": driver("b", "/b")}).open()
	f.holds("b@/b", "a.yaml")
	f.write(map[string]string{"a.yaml": driver("a", "/a")})
	f.file.Read()
	f.holds("a@/a b@/b", "")
}

func TestFolderWithoutAGoodFileIsAnErrorAtAStart(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"empty":         {},
		"other files":   {"README.md": "x"},
		"other name":    {"a.yml": driver("a", "/a")},
		"all bad":       {"a.yaml": typo},
		"bad defaults":  {"a.yaml": header + "defaults: {workers: 0}\ndrivers: []\n", "b.yaml": driver("b", "/b")},
		"misspelt":      {"00.yaml": header + "defalts: {mode: observe}\ndrivers: []\n", "a.yaml": driver("a", "/a")},
		"quoted":        {"00.yaml": "'defaults': {mode: observe}\n: :", "a.yaml": driver("a", "/a")},
		".yml":          {"00.yml": header + "defaults: {mode: observe}\ndrivers: []\n", "a.yaml": driver("a", "/a")},
		"no YAML":       {"a.yaml": "defaults: {workers: 5\n", "b.yaml": driver("b", "/b")},
		"defaults here": {"a.yaml": driver("a", "/a", "defaults: {}\n"), "b.yaml": driver("b", "/b", "defaults: {}\n")},
	} {
		_, err := registry.NewFile(newFolder(t, files).path, registry.DefaultSettings())
		if all, ok := errors.AsType[registry.Errors](err); !ok || len(all) == 0 {
			t.Errorf("%s: got %v, want Errors", name, err)
		}
	}
}

func TestDefaultsOfOneFileHoldForAll(t *testing.T) {
	f := newFolder(t, map[string]string{"0.yaml": header + "defaults: {workers: 7, retry: {initial: 2s}}\ndrivers: []\n", "a.yaml": driver("a", "/a")}).open()
	workers := func(want int) {
		t.Helper()
		if got := f.file.Config().Drivers()["a"].Workers; got != want {
			t.Errorf("%d workers, want %d", got, want)
		}
	}
	workers(7)
	f.write(map[string]string{"0.yaml": header + "defaults: {workers: 8, retry: {initial: 2s}}\ndrivers: []\n", "a.yaml": typo})
	f.file.Read()
	f.holds("a@/a", "a.yaml") // what it said last, by the new defaults
	workers(8)
	// All files depend on the defaults.
	f.write(map[string]string{"0.yaml": header + "defaults: {workers: many}\ndrivers: []\n", "a.yaml": driver("a", "/a2")})
	f.file.Read()
	f.holds("a@/a", "0.yaml")
	f.write(map[string]string{"0.yaml": "defaults: {workers: 9\n"})
	f.file.Read()
	f.holds("a@/a", "0.yaml")
	f.write(map[string]string{"0.yaml": header + "defaults: {workers: 9, retry: {initial: 2s}}\ndrivers: []\n", "b.yaml": driver("b", "/b", "defaults: {}\n")})
	f.file.Read()
	f.holds("a@/a", "0.yaml b.yaml")
	workers(8)
	f.write(map[string]string{"b.yaml": header + "drivers: [{name: b, endpoint: \"unix:///b\", retry: {max: 1s}}]\n"})
	f.file.Read()
	f.holds("a@/a2", "b.yaml")
	workers(9)
	if text := f.file.Status().Errors.Error(); !strings.Contains(text, "b.yaml:3: drivers[0].retry.max: must not be below retry.initial, which is 2s") {
		t.Errorf("the error is %s", text)
	}
}

func TestDiscoveryIsInOneFile(t *testing.T) {
	const objects = "discovery: {csiDrivers: {enabled: true, allowedEndpoints: [unix:///*]}}\n"
	f := newFolder(t, map[string]string{"a.yaml": driver("a", "/a", objects), "b.yaml": driver("b", "/b")}).open()
	f.write(map[string]string{"b.yaml": driver("b", "/b2", strings.Replace(objects, "true", "false", 1))})
	f.file.Read()
	f.holds("a@/a b@/b2", "a.yaml b.yaml")
	if !f.file.Config().Discovery().Enabled {
		t.Error("what was said before does not hold")
	}
}

func TestDriverInTwoFiles(t *testing.T) {
	for name, second := range map[string]string{
		"name":     driver("a", "/other"),
		"copy":     driver("a", "/a"),
		"endpoint": driver("x", "/a"),
		"lease":    header + "drivers: [{name: x, endpoint: \"unix:///x\", lease: {name: external-attacher-leader-a}}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t, map[string]string{"b.yaml": driver("a", "/a"), "c.yaml": driver("c", "/c")}).open()
			f.write(map[string]string{"a.yaml": second})
			f.file.Read()
			f.holds("a@/a c@/c", "a.yaml")
			again := newFolder(t, map[string]string{"a.yaml": second, "b.yaml": driver("a", "/a"), "c.yaml": driver("c", "/c")}).open()
			again.holds("c@/c", "a.yaml b.yaml") // which one is right is not known
			// The driver moves: it is served from its new file when it has left the other one.
			f.write(map[string]string{"a.yaml": driver("a", "/moved"), "b.yaml": ""})
			f.file.Read()
			f.holds("a@/moved c@/c", "")
		})
	}
}

func TestEntryThatTakesTheEndpointOfAnotherFileStaysAsItWas(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": driver("a", "/a"), "b.yaml": driver("b", "/b")}).open()
	f.write(map[string]string{"a.yaml": driver("a", "/b")})
	f.file.Read()
	f.holds("a@/a b@/b", "a.yaml")
	f.write(map[string]string{"b.yaml": driver("b", "/a")}) // they change places
	f.file.Read()
	f.holds("a@/b b@/a", "")
}

func TestDiscoveryServesNoNewNameUntilAllFilesAreGood(t *testing.T) {
	const objects = "discovery: {csiDrivers: {enabled: true, allowedEndpoints: [unix:///*]}}\n"
	f := newFolder(t, map[string]string{"a.yaml": typo, "b.yaml": driver("b", "/b", objects)}).open()
	found := []registry.Driver{object("a", "unix:///elsewhere"), object("o", "unix:///o")}
	served := func(last registry.Snapshot) string {
		return strings.Join(slices.Sorted(maps.Keys(registry.MergeAfter(f.file.Config(), found, last))), " ")
	}
	if got := served(nil); got != "b" {
		t.Errorf("served are %s, want b", got)
	}
	if got := served(registry.Snapshot{"o": found[1]}); got != "b o" {
		t.Errorf("served are %s, want b and o, which was served before", got)
	}
	f.write(map[string]string{"a.yaml": driver("a", "/a")})
	f.file.Read()
	if got := served(nil); got != "a b o" {
		t.Errorf("served are %s, want all", got)
	}
}

// mount writes a version of a ConfigMap, and has its links lead there at once, as the kubelet does.
func (f *folder) mount(version string, files map[string]string) {
	f.t.Helper()
	dir := filepath.Join(f.path, "..v"+version)
	check(f.t, os.Mkdir(dir, 0o700))
	for name, content := range files {
		write(f.t, filepath.Join(dir, name), content)
		if err := os.Symlink("..data/"+name, filepath.Join(f.path, name)); err != nil && !errors.Is(err, os.ErrExist) {
			f.t.Fatal(err)
		}
	}
	next := filepath.Join(f.path, "..data_tmp")
	check(f.t, os.Symlink("..v"+version, next))
	check(f.t, os.Rename(next, filepath.Join(f.path, "..data")))
}

func TestFolderOfAConfigMapIsFollowed(t *testing.T) {
	f := newFolder(t, nil)
	f.mount("1", map[string]string{"a.yaml": driver("a", "/a"), "b.yaml": driver("b", "/b")})
	f.file = newFile(t, f.path, time.Hour)
	r := runSource(t, follow(f.file))
	r.expect("a", "b")
	f.mount("2", map[string]string{"a.yaml": driver("a", "/a"), "c.yaml": driver("b", "/b2")})
	check(t, os.Remove(filepath.Join(f.path, "b.yaml")))
	r.expect("a", "b")
	f.holds("a@/a b@/b2", "")
	f.mount("3", map[string]string{"c.yaml": driver("c", "/c")})
	check(t, os.Remove(filepath.Join(f.path, "a.yaml")))
	r.expect("c")
}

// Files are read from one version, whatever is mounted meanwhile: a driver that moves from one file to another would be in none.
func TestReadWhileAConfigMapChangesRetiresNobody(t *testing.T) {
	f := newFolder(t, nil)
	f.mount("0", map[string]string{"a.yaml": driver("a", "/a"), "b.yaml": header + "drivers: []\n"})
	f.open()
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			files := []string{"a.yaml", "b.yaml"}
			f.mount(fmt.Sprint(i), map[string]string{files[i%2]: driver("a", "/a"), files[(i+1)%2]: header + "drivers: []\n"})
			if i > 1 {
				_ = os.RemoveAll(filepath.Join(f.path, fmt.Sprintf("..v%d", i-2)))
			}
		}
	}()
	for range 500 {
		f.file.Read()
		if drivers := f.file.Config().Drivers(); len(drivers) != 1 {
			t.Errorf("these drivers hold: %v", drivers)
			break
		}
	}
	close(stop)
	<-done
}

const (
	observed = header + "defaults:\n  mode: observe\ndrivers: []\n"
	driverX  = header + "drivers:\n- {name: x.example, endpoint: \"unix:///x\"}\n"
	driverY  = header + "drivers:\n- {name: x.example, endpoint: \"unix:///x\", tmeout: 5s}\n"
	nothing  = header + "drivers: []\n"
)

// A mistake in one file must neither end nor change the work for the drivers of the others.
func TestMistakeInAFileOfAFolderChangesNoOtherDriver(t *testing.T) {
	before := map[string]string{"00.yaml": observed, "a.yaml": driverX, "b.yaml": nothing}
	for name, after := range map[string]map[string]string{
		"the key defaults is misspelt":       {"00.yaml": header + "defalts:\n  mode: observe\ndrivers: []\n", "a.yaml": driverX, "b.yaml": nothing},
		"defaults in a second document":      {"00.yaml": nothing + "---\n" + observed, "a.yaml": driverX, "b.yaml": nothing},
		"defaults renamed to .yml":           {"00.yml": observed, "a.yaml": driverX, "b.yaml": nothing},
		"defaults renamed with a mistake":    {"01.yaml": observed + "x: 1\n", "a.yaml": driverX, "b.yaml": nothing},
		"the driver renamed to .yml":         {"00.yaml": observed, "a.yml": driverX, "b.yaml": nothing},
		"the driver renamed with a mistake":  {"00.yaml": observed, "c.yaml": driverY, "b.yaml": nothing},
		"the driver moved with a mistake":    {"00.yaml": observed, "a.yaml": nothing, "b.yaml": driverY},
		"the file of another driver is lost": {"00.yaml": observed, "a.yaml": driverX, "b.yaml": "{"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t, before).open()
			become := func(from, files map[string]string) {
				for old := range from {
					check(t, os.Remove(filepath.Join(f.path, old)))
				}
				f.write(files)
				f.file.Read()
				if d := f.file.Config().Drivers()["x.example"]; d.Mode != registry.ModeObserve || d.Endpoint != "unix:///x" {
					t.Errorf("the driver is %+v", d)
				}
			}
			last := f.file.Config().Drivers()
			become(before, after)
			found := []registry.Driver{object("x.example", "unix:///csi/x"), object("new.example", "unix:///csi/new")}
			if served := registry.MergeAfter(f.file.Config(), found, last); served["x.example"].Endpoint != "unix:///x" || len(served) != 1 {
				t.Errorf("with discovery: %+v", served)
			}
			become(after, before)
		})
	}
}

func TestSecretsOfADriverAreItsOwnWhileItIsNotServed(t *testing.T) {
	f := newFolder(t, map[string]string{"a.yaml": header + "drivers:\n- {name: x.example, endpoint: \"unix:///x\", secrets: [team-x/*], tmeout: 3s}\n",
		"b.yaml": driver("b.example", "/b")}).open()
	served := registry.MergeAfter(f.file.Config(), nil, nil)
	if err := served["b.example"].CheckSecret("team-x", "key"); err == nil || len(served) != 1 {
		t.Errorf("served %v; another driver may name the Secret: %v", served, err)
	}
}
