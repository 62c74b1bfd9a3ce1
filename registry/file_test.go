package registry_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// changes is each way in which the content of a file becomes another one.
var changes = map[string]struct {
	change func(t *testing.T, path, content string)
	polled bool // events may miss it
}{
	"written in place": {change: func(t *testing.T, path, content string) { write(t, path, content) }},
	"truncated, then written in parts": {change: func(t *testing.T, path, content string) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		check(t, err)
		for part := range strings.SplitAfterSeq(content, "\n") {
			_, err := f.WriteString(part)
			check(t, err)
		}
		check(t, f.Close())
	}},
	"renamed over it": {change: func(t *testing.T, path, content string) {
		write(t, path+".new", content)
		check(t, os.Rename(path+".new", path))
	}},
	"moved away by an editor": {change: func(t *testing.T, path, content string) {
		check(t, os.Rename(path, path+"~"))
		write(t, path, content)
	}},
	"removed and made again": {change: func(t *testing.T, path, content string) {
		check(t, os.Remove(path))
		write(t, path, content)
	}},
	"a link to another file": {change: func(t *testing.T, path, content string) {
		target := filepath.Join(t.TempDir(), "target.yaml")
		write(t, target, content)
		check(t, os.Symlink(target, path+".new"))
		check(t, os.Rename(path+".new", path))
	}},
	// A folder of links into ..data, itself a link to the folder of the version, which is swapped.
	"a ConfigMap mounted anew": {change: func(t *testing.T, path, content string) {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			check(t, os.Remove(path))
		}
		f := &folder{t: t, path: filepath.Dir(path)}
		f.mount(filepath.Base(t.TempDir()), map[string]string{filepath.Base(path): content})
	}},
	"the folder replaced": {polled: true, change: func(t *testing.T, path, content string) {
		dir := filepath.Dir(path)
		check(t, os.Rename(dir, dir+".old"))
		check(t, os.Mkdir(dir, 0o700))
		write(t, path, content)
		check(t, os.RemoveAll(dir+".old"))
	}},
}

func TestFileIsFollowedHoweverItIsChanged(t *testing.T) {
	for name, way := range changes {
		for _, mode := range []string{"watched", "polled"} {
			if way.polled && mode == "watched" {
				continue
			}
			t.Run(name+", "+mode, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "config", "drivers.yaml")
				check(t, os.Mkdir(filepath.Dir(path), 0o700))
				write(t, path, driversFile("a"))
				r := runSource(t, follow(fileIn(t, mode, path)))
				r.expect("a")
				way.change(t, path, driversFile("a", "b"))
				r.expect("a", "b")
				way.change(t, path, driversFile())
				r.expect()
				way.change(t, path, driversFile("c"))
				r.expect("c")
			})
		}
	}
}

// fileIn returns a File that finds changes in one way only.
func fileIn(t *testing.T, mode, path string) *registry.File {
	t.Helper()
	if mode == "polled" {
		return newFile(t, path, time.Millisecond).WithoutWatcher()
	}
	return newFile(t, path, time.Hour)
}

// logContext returns a context whose log can be read. Lines come one by one.
func logContext(t *testing.T) (context.Context, <-chan string) {
	lines := make(chan string, 1000)
	logger := funcr.New(func(prefix, args string) {
		t.Log(args)
		lines <- args
	}, funcr.Options{})
	return klog.NewContext(t.Context(), logger), lines
}

// logged waits for a line with the words, and returns how many came before it.
func logged(t *testing.T, lines <-chan string, words string) (before int) {
	t.Helper()
	for {
		select {
		case line := <-lines:
			if strings.Contains(line, words) {
				return before
			}
			before++
		case <-time.After(time.Minute):
			t.Fatalf("%q was not logged for a minute", words)
		}
	}
}

func TestBadFileKeepsTheLastGoodOneUntilItIsRepaired(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string){
		"missing":     func(t *testing.T, path string) { check(t, os.Remove(path)) },
		"empty":       func(t *testing.T, path string) { write(t, path, "") },
		"invalid":     func(t *testing.T, path string) { write(t, path, header+"driver: []\n") },
		"no YAML":     func(t *testing.T, path string) { write(t, path, "{") },
		"a directory": func(t *testing.T, path string) { check(t, os.Remove(path)); check(t, os.Mkdir(path, 0o700)) },
	} {
		for _, mode := range []string{"watched", "polled"} {
			t.Run(name+", "+mode, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "drivers.yaml")
				write(t, path, driversFile("a"))
				f := fileIn(t, mode, path)
				good := f.Status()
				if len(good.Hash) != 64 || good.LastSuccess.IsZero() || good.Errors != nil {
					t.Errorf("at the start the status is %+v", good)
				}
				ctx, lines := logContext(t)
				r := runSourceWith(t, ctx, follow(f))
				r.expect("a")
				spoil(t, path)
				logged(t, lines, "Configuration file rejected")
				bad := f.Status()
				if bad.Hash != good.Hash || !bad.LastSuccess.Equal(good.LastSuccess) || len(bad.Errors) == 0 {
					t.Errorf("the status of a bad file is %+v, of the good one %+v", bad, good)
				}
				if d := f.Config().Drivers(); len(d) != 1 || d["a"].Name != "a" {
					t.Errorf("the drivers became %v", d)
				}
				check(t, os.RemoveAll(path))
				write(t, path, driversFile("b"))
				if got := r.next(); !slices.Equal(got, []string{"b"}) {
					t.Errorf("after the last good set comes %v, want the repaired one", got)
				}
				if again := f.Status(); again.Hash == good.Hash || again.Errors != nil || !again.LastSuccess.After(good.LastSuccess) {
					t.Errorf("the status of the repaired file is %+v", again)
				}
			})
		}
	}
}

func TestFileThatWasAFolderWhenItWasFirstWatchedIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drivers.yaml")
	write(t, path, driversFile("a"))
	f := fileIn(t, "watched", path)
	check(t, os.Remove(path))
	check(t, os.Mkdir(path, 0o700))
	ctx, lines := logContext(t)
	r := runSourceWith(t, ctx, follow(f))
	r.expect("a")
	logged(t, lines, "the folder has no *.yaml")
	check(t, os.Remove(path))
	logged(t, lines, "file does not exist")
	write(t, path, driversFile("b"))
	r.expect("b")
}

// fsnotify holds its lock until somebody receives the error of the removed folder, and Run needs that lock to watch the next
// one. Not every run meets that.
func TestFolderThatIsReplacedOverAndOverIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config", "drivers.yaml")
	check(t, os.Mkdir(filepath.Dir(path), 0o700))
	write(t, path, driversFile("a"))
	r := runSource(t, follow(newFile(t, path, time.Millisecond)))
	for i := range 3000 {
		changes["the folder replaced"].change(t, path, driversFile(fmt.Sprint("d", i)))
		if i%100 == 99 {
			r.expect(fmt.Sprint("d", i))
		}
	}
}

// virtual runs a test of a polled File in virtual time.
func virtual(t *testing.T, content string, test func(t *testing.T, path string, r *sourceRun, f *registry.File, lines <-chan string)) {
	path := filepath.Join(t.TempDir(), "drivers.yaml")
	write(t, path, content)
	synctest.Test(t, func(t *testing.T) {
		f, err := registry.NewFile(path, registry.DefaultSettings())
		check(t, err)
		ctx, lines := logContext(t)
		r := runSourceWith(t, ctx, follow(f.WithoutWatcher()))
		defer r.stop()
		r.expect("a")
		logged(t, lines, "Cannot watch the folder")
		time.Sleep(time.Second)
		test(t, path, r, f, lines)
	})
}

// nothing checks that nothing is sent within a time.
func (r *sourceRun) nothing(within time.Duration) {
	r.t.Helper()
	select {
	case set := <-r.out:
		r.t.Errorf("the set %v was sent", set)
	case <-time.After(within):
	}
}

func TestBadFileIsLoggedOncePerContent(t *testing.T) {
	virtual(t, driversFile("a"), func(t *testing.T, path string, r *sourceRun, _ *registry.File, lines <-chan string) {
		expect := func(content string, words ...string) {
			t.Helper()
			write(t, path, content)
			r.nothing(time.Hour)
			for _, w := range words {
				if before := logged(t, lines, w); before > 0 {
					t.Errorf("%d lines before %q", before, w)
				}
			}
			if len(lines) > 0 {
				t.Errorf("also logged: %s", <-lines)
			}
		}
		expect(driversFile("a")) // the same bytes
		expect("", "Configuration file rejected")
		expect("")
		expect("x", "Configuration file rejected")
		expect(driversFile("a"), "Configuration reloaded") // as it was: nothing is sent
		expect("x", "Configuration file rejected")
	})
}

func TestHalfOfAFileIsNotBelievedWhileItIsWritten(t *testing.T) {
	whole := driversFile("a", "b", "c")
	half := driversFile("a", "b") // is valid
	virtual(t, driversFile("a"), func(t *testing.T, path string, r *sourceRun, _ *registry.File, lines <-chan string) {
		write(t, path, half)
		time.Sleep(9*time.Second + 150*time.Millisecond) // the poll is at 10s, the first reading 100ms later
		write(t, path, whole)
		if got := r.next(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("got %v", got)
		}
	})
}

func TestReloadReadsTheFileBeforeThePoll(t *testing.T) {
	virtual(t, driversFile("a"), func(t *testing.T, path string, r *sourceRun, f *registry.File, _ <-chan string) {
		write(t, path, driversFile("b"))
		begin := time.Now()
		f.Reload()
		f.Reload() // does not block
		r.expect("b")
		if after := time.Since(begin); after > time.Second {
			t.Errorf("it took %v", after)
		}
	})
}

func TestChangeBesideTheDriversIsSentToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drivers.yaml")
	write(t, path, driversFile("a"))
	f := newFile(t, path, time.Hour)
	r := runSource(t, follow(f))
	r.expect("a")
	write(t, path, driversFile("a")+"discovery: {csiDrivers: {enabled: true, allowedEndpoints: [unix:///csi/*]}}\n")
	r.expect("a")
	if got := f.Config().Discovery(); !got.Enabled {
		t.Errorf("discovery is %+v", got)
	}
}

func TestFileMayRunAgainAndEndsWithoutAReceiver(t *testing.T) {
	for _, mode := range []string{"watched", "polled"} {
		path := filepath.Join(t.TempDir(), "drivers.yaml")
		write(t, path, driversFile("a"))
		source := follow(fileIn(t, mode, path))
		for range 2 {
			r := runSource(t, source)
			r.expect("a")
			write(t, path, driversFile("a", "b")) // which nobody receives
			write(t, path, driversFile("a"))
			r.stop()
		}
	}
}

func TestFileChangedBeforeItRunsIsReadWhenItDoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drivers.yaml")
	write(t, path, driversFile("a"))
	f := newFile(t, path, time.Hour)
	write(t, path, driversFile("b"))
	r := runSource(t, follow(f))
	r.expect("b")
}

func TestEventsWithoutEndDoNotKeepAFileFromBeingRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "drivers.yaml")
	write(t, path, driversFile("a"))
	f, err := registry.NewFile(path, registry.DefaultSettings())
	check(t, err)
	f.At(time.Hour, 500*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			write(t, filepath.Join(dir, "another"), "")
			time.Sleep(time.Millisecond)
		}
	}()
	r := runSource(t, follow(f))
	r.expect("a")
	write(t, path, driversFile("b"))
	r.expect("b")
	cancel()
	<-ended
}
