package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestVersionsThatAreTestedAreThoseOfTheModules(t *testing.T) {
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	read := func(path ...string) string {
		data, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	plane := read(nested(root, "controlplane"), "go.mod")
	version := func(of, mod string) string {
		return regexp.MustCompile(regexp.QuoteMeta(of) + ` v(\S+)`).FindStringSubmatch(mod)[1]
	}
	kubernetes := version("k8s.io/kubernetes", plane)
	want := fmt.Sprintf("Tested with Kubernetes %s, etcd %s and csi-attacher %s.", kubernetes, version("go.etcd.io/etcd/server/v3", plane),
		version("kubernetes-csi/external-attacher/v4", read(nested(root, "csiattacher"), "go.mod")))
	if !strings.Contains(read(root, "README.md"), want) || !strings.HasSuffix(linkFlags, "=v"+kubernetes) {
		t.Errorf("README.md lacks %q, or kube-apiserver has another version: %s", want, linkFlags)
	}
}

func TestConcurrentCallersBuildOnce(t *testing.T) {
	dir := t.TempDir()
	var builds atomic.Int32
	// Each opens the lock for itself, as another process would.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			path, err := cached(dir, "built-key", func(file string) error {
				builds.Add(1)
				return os.WriteFile(file, []byte("binary"), 0o755)
			})
			if data, readErr := os.ReadFile(path); err != nil || readErr != nil || string(data) != "binary" {
				t.Errorf("read %s: %q, %v, %v", path, data, err, readErr)
			}
		})
	}
	wg.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
}

func TestCacheKeepsNeitherFailedNorOldBuilds(t *testing.T) {
	dir, broken := t.TempDir(), errors.New("does not compile")
	used, unused := filepath.Join(dir, "built-used"), filepath.Join(dir, "built-unused")
	for path, age := range map[string]time.Duration{used: cacheLife - time.Hour, unused: cacheLife + time.Hour} {
		at := time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(path, nil, 0o755), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cached(dir, "built-key", func(file string) error {
		return errors.Join(os.WriteFile(file, []byte("half"), 0o755), broken)
	}); !errors.Is(err, broken) {
		t.Errorf("error is %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "[^l]*"))
	if err != nil || len(left) != 1 || left[0] != used {
		t.Errorf("left are %v (%v), want %s", left, err, used)
	}
}

func TestKeyChangesWithWhatGoesIntoTheBinary(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	key := func() string {
		t.Helper()
		k, err := sourceKey(dir)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	write("go.mod", "module m")
	write("go.sum", "a")
	write("main.go", "package main")
	first := key()
	write("main_test.go", "package main")
	write("notes.txt", "notes")
	if key() != first {
		t.Error("the key depends on what does not go into the binary")
	}
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		before := key()
		write(name, "changed")
		if key() == before {
			t.Errorf("the key does not depend on %s", name)
		}
	}
}

func TestRepositoryIsFoundFromANestedModule(t *testing.T) {
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(nested(root, "controlplane"))
	if again, err := repositoryRoot(); err != nil || again != root {
		t.Errorf("found %s (%v), want %s", again, err, root)
	}
}
