package deploy_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// buildah runs in a storage of the test's own.
type buildah struct {
	t     *testing.T
	flags []string
}

func (b buildah) run(args ...string) string {
	b.t.Helper()
	var progress strings.Builder
	cmd := exec.CommandContext(b.t.Context(), "buildah", slices.Concat(b.flags, args)...)
	cmd.Stderr = &progress
	out, err := cmd.Output()
	if err != nil {
		b.t.Fatalf("buildah %s: %v\n%s", args[0], err, progress.String())
	}
	return strings.TrimSpace(string(out))
}

func TestImageHasTheProgramAloneWhichRunsAsNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the image")
	}
	if _, err := exec.LookPath("buildah"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no buildah here, and CI must not skip this test: make buildah")
		}
		t.Skip("no buildah here: make buildah, and the image is tested too")
	}
	dir := t.TempDir()
	b := buildah{t, []string{"--storage-driver", "vfs", "--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run")}}
	// What is tested is what `make image` makes.
	output, err := exec.CommandContext(t.Context(), "make", "-C", "..", "image", "VERSION=v0-test", "IMAGE_DIR="+filepath.Join(dir, "image"),
		"BUILDAH=buildah "+strings.Join(b.flags, " ")).CombinedOutput()
	if err != nil {
		t.Fatalf("make image: %v\n%s", err, output)
	}
	container := b.run("from", "oci-archive:"+filepath.Join(dir, "image.tar"))
	t.Cleanup(func() {
		if out, err := exec.Command("buildah", slices.Concat(b.flags, []string{"rm", container})...).CombinedOutput(); err != nil {
			t.Errorf("remove the container: %v\n%s", err, out)
		}
	})
	var files []string
	mount := b.run("mount", container)
	if err := filepath.WalkDir(mount, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, strings.TrimPrefix(path, mount))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(files, []string{"/csi-attach-hub"}) {
		t.Errorf("in the image are %v", files)
	}
	// In an empty root file system a binary runs only if it is static.
	if got := b.run("run", "--isolation", "chroot", container, "--", "/csi-attach-hub", "version"); !strings.HasPrefix(got, "csi-attach-hub v0-test ") {
		t.Errorf("it says %q", got)
	}
	var image struct {
		OCIv1 struct {
			Config struct {
				User       string
				Entrypoint []string
			} `json:"config"`
		}
	}
	if err := json.Unmarshal([]byte(b.run("inspect", "--type", "container", container)), &image); err != nil {
		t.Fatal(err)
	}
	if c := image.OCIv1.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, files) {
		t.Errorf("it runs %v as user %q", c.Entrypoint, c.User)
	}
}
