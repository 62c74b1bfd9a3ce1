package testbed

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var builtCommand = nestedCommand{module: "built"}

func TestConcurrentCallersBuildOnce(t *testing.T) {
	var mu sync.Mutex
	builds := 0
	cache := binaryCache{dir: t.TempDir(), log: io.Discard, build: func(_ context.Context, output string) error {
		mu.Lock()
		defer mu.Unlock()
		builds++
		return os.WriteFile(output, []byte("binary"), 0o755)
	}}
	// Each opens the lock for itself, as another process would.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			path, err := cache.get(t.Context(), "key")
			if err != nil {
				t.Error(err)
				return
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != "binary" {
				t.Errorf("read %s: %q, %v", path, data, err)
			}
		})
	}
	wg.Wait()
	if builds != 1 {
		t.Errorf("built %d times", builds)
	}
}

func TestWaitForTheBuildOfAnotherProcessCanBeCancelled(t *testing.T) {
	log := &strings.Builder{}
	cache := binaryCache{dir: t.TempDir(), log: log, build: func(context.Context, string) error { return nil }}
	unlock, err := cache.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := cache.get(ctx, "key"); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want that of the context", err)
	}
	if !strings.Contains(log.String(), "waiting") {
		t.Errorf("the wait was not told: %q", log.String())
	}
}

func TestFailedBuildLeavesNothingBehind(t *testing.T) {
	broken := errors.New("does not compile")
	cache := binaryCache{dir: t.TempDir(), command: builtCommand, log: io.Discard, build: func(_ context.Context, output string) error {
		return errors.Join(os.WriteFile(output, []byte("half"), 0o755), broken)
	}}
	if _, err := cache.get(t.Context(), "key"); !errors.Is(err, broken) {
		t.Errorf("error is %v", err)
	}
	if left := builtFiles(t, cache.dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCacheKeepsTheBuildsUsedLast(t *testing.T) {
	cache := binaryCache{dir: t.TempDir(), command: builtCommand, log: io.Discard, build: func(_ context.Context, output string) error {
		return os.WriteFile(output, nil, 0o755)
	}}
	for i, key := range []string{"a", "b", "c"} {
		path, err := cache.get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		age := time.Now().Add(-time.Hour + time.Duration(i)*time.Minute)
		if err := os.Chtimes(path, age, age); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"a", "d"} { // a is used again, then d is built
		if _, err := cache.get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"built-a", "built-c", "built-d"}
	if got := builtFiles(t, cache.dir); !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v", got, want)
	}
}

func builtFiles(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, builtCommand.module+"-*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

func TestKeyChangesWithWhatGoesIntoTheBinary(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	key := func(toolchain string) string {
		t.Helper()
		k, err := sourceKey(dir, toolchain)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	write("go.mod", "module m")
	write("go.sum", "a")
	write("main.go", "package main")
	first := key("go1")

	if key("go1") != first {
		t.Error("the key of the same sources differs")
	}
	if key("go2") == first {
		t.Error("the key does not depend on the Go version")
	}
	write("main_test.go", "package main")
	write("notes.txt", "notes")
	if key("go1") != first {
		t.Error("the key depends on what does not go into the binary")
	}
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		before := key("go1")
		write(name, "changed")
		if key("go1") == before {
			t.Errorf("the key does not depend on %s", name)
		}
	}
}

func TestRepositoryIsFoundFromANestedModule(t *testing.T) {
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(root, "internal", "test", "world", "controlplane"))
	if again, err := repositoryRoot(); err != nil || again != root {
		t.Errorf("found %s (%v), want %s", again, err, root)
	}
}
