package deploy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// archive is an OCI archive: what the files in it have.
type archive map[string][]byte

func openArchive(t *testing.T, path string) archive {
	t.Helper()
	return untar(t, bytes.NewReader(readFile(t, path)))
}

func untar(t *testing.T, from io.Reader) archive {
	t.Helper()
	files := archive{}
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// descriptor names a blob of an archive.
type descriptor struct {
	Digest   string
	Platform struct{ OS, Architecture string }
}

func (d descriptor) path() string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }

func (a archive) blob(t *testing.T, d descriptor, v any) {
	t.Helper()
	if err := json.Unmarshal(a[d.path()], v); err != nil {
		t.Fatalf("%s: %v", d.Digest, err)
	}
}

// list returns the descriptor of the manifest list.
func (a archive) list(t *testing.T) descriptor {
	t.Helper()
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(a["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Manifests) != 1 {
		t.Fatalf("the archive has %d images, want one manifest list", len(index.Manifests))
	}
	return index.Manifests[0]
}

// image is the image of one platform.
type image struct {
	config struct {
		Architecture string
		Config       struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
		}
	}
	files archive
}

// images returns the images of a manifest list, by platform.
func (a archive) images(t *testing.T) map[string]image {
	t.Helper()
	var list struct{ Manifests []descriptor }
	a.blob(t, a.list(t), &list)
	all := map[string]image{}
	for _, m := range list.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		a.blob(t, m, &manifest)
		if len(manifest.Layers) != 1 {
			t.Fatalf("the image has %d layers", len(manifest.Layers))
		}
		layer, err := gzip.NewReader(bytes.NewReader(a[manifest.Layers[0].path()]))
		if err != nil {
			t.Fatal(err)
		}
		i := image{files: untar(t, layer)}
		a.blob(t, manifest.Config, &i.config)
		all[m.Platform.OS+"/"+m.Platform.Architecture] = i
	}
	return all
}
