package deploy_test

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// buildah runs in a storage of the test's own.
type buildah struct {
	t     *testing.T
	flags []string
}

func newBuildah(t *testing.T) buildah {
	t.Helper()
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
	return buildah{t, []string{"--storage-driver", "vfs", "--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run")}}
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

// makeImage runs `make image` in a folder with the sources, by a shell that sets the umask. It returns the folder with the archives.
func (b buildah) makeImage(source, umask string, variables ...string) string {
	b.t.Helper()
	dir := b.t.TempDir()
	output, err := exec.CommandContext(b.t.Context(), "sh", append([]string{"-c", `umask "$0" && exec make "$@"`, umask, "-C", source, "image",
		"VERSION=v0-test", "REVISION=0123456789abcdef", "SOURCE_DATE_EPOCH=1767323045",
		"IMAGE_DIR=" + filepath.Join(dir, "image"), "BUILDAH=buildah " + strings.Join(b.flags, " ")}, variables...)...).CombinedOutput()
	if err != nil {
		b.t.Fatalf("make image: %v\n%s", err, output)
	}
	return dir
}

// madeImage is an image that `make image` makes.
type madeImage struct {
	archive, program, user, description string
	sayVersion                          []string
}

func TestImage(t *testing.T) {
	b := newBuildah(t)
	dir := b.makeImage("..", "022")
	made := []madeImage{
		{"image.tar", "csi-attach-hub", "65532:65532", "Attaches the volumes of all CSI drivers of a cluster, in place of their csi-attacher sidecars", []string{"version"}},
		{"image-root.tar", "csi-attach-hub", "0:0", "Attaches the volumes of all CSI drivers of a cluster, in place of their csi-attacher sidecars", []string{"version"}},
		{"image-proxy.tar", "csi-attach-proxy", "65532:65532", "Forwards calls of csi-attach-hub over mutual TLS to a CSI driver on a unix socket", []string{"--version"}},
	}

	archives, all := map[string]archive{}, map[string]map[string]image{} // by name; the images by platform
	for _, m := range made {
		archives[m.archive] = openArchive(t, filepath.Join(dir, m.archive))
		all[m.archive] = archives[m.archive].images(t)
	}

	t.Run("has the program alone, for both platforms and users", func(t *testing.T) {
		for _, m := range made {
			images := all[m.archive]
			if len(images) != 2 {
				t.Errorf("it has %d platforms", len(images))
			}
			for _, arch := range []string{"amd64", "arm64"} {
				i := images["linux/"+arch]
				if len(i.files) != 1 || i.config.Architecture != arch || i.config.Config.User != m.user || !slices.Equal(i.config.Config.Entrypoint, []string{"/" + m.program}) {
					t.Errorf("%s: %d files, config %+v", arch, len(i.files), i.config)
				}
				info, err := buildinfo.Read(bytes.NewReader(i.files[m.program]))
				if err != nil {
					t.Fatalf("%s: %v", arch, err)
				}
				if !strings.Contains(info.String(), "\tGOARCH="+arch+"\n") || !strings.Contains(info.String(), "\tCGO_ENABLED=0\n") {
					t.Errorf("%s: the program is built with\n%s", arch, info)
				}
			}
		}
	})

	t.Run("runs in an empty file system", func(t *testing.T) { // a binary that is not static would not
		for _, m := range made {
			container := b.run("from", "oci-archive:"+filepath.Join(dir, m.archive))
			t.Cleanup(func() { b.run("rm", container) })
			if got := b.run(append([]string{"run", "--isolation", "chroot", "--user", m.user, container, "--", "/" + m.program}, m.sayVersion...)...); !strings.HasPrefix(got, m.program) || !strings.Contains(got, "v0-test") {
				t.Errorf("%s: it says %q", m.archive, got)
			}
		}
	})

	t.Run("says where it comes from", func(t *testing.T) {
		for _, m := range made {
			want := map[string]string{
				"org.opencontainers.image.title":       m.program,
				"org.opencontainers.image.description": m.description,
				"org.opencontainers.image.source":      "https://github.com/csi-attach-hub/csi-attach-hub",
				"org.opencontainers.image.version":     "v0-test",
				"org.opencontainers.image.revision":    "0123456789abcdef",
				"org.opencontainers.image.created":     "2026-01-02T03:04:05Z",
			}
			for platform, i := range all[m.archive] {
				if diff := cmp.Diff(want, i.config.Config.Labels); diff != "" {
					t.Errorf("%s, %s: labels (-want +image):\n%s", m.archive, platform, diff)
				}
			}
		}
	})

	t.Run("is the same from another folder, at another time, with another umask", func(t *testing.T) {
		again := newBuildah(t).makeImage(copyOfSources(t), "077", "ARCHITECTURES=amd64", "PROGRAMS=csi-attach-proxy") // the other images have the same recipe
		for _, m := range made[2:] {
			was, now := archives[m.archive], openArchive(t, filepath.Join(again, m.archive))
			for blob := range now { // but the list of platforms
				if blob != "index.json" && blob != now.list(t).path() && was[blob] == nil {
					t.Errorf("%s: %s is another", m.archive, blob)
				}
			}
		}
	})
}

// copyOfSources copies what `make image` needs.
func copyOfSources(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), "cp", "-r", "--parents", "Makefile", "go.mod", "go.sum", "deploy/Dockerfile", "cmd", "hub", "internal", "registry", dir)
	c.Dir = ".."
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}
