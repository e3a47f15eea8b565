package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// archive reads a tar into its files and their modes.
func archive(t *testing.T, r io.Reader) (files map[string][]byte, modes map[string]int64) {
	t.Helper()
	files, modes = map[string][]byte{}, map[string]int64{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files, modes
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(time.Unix(0, 0)) && !h.ModTime.IsZero() || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s has the time %s and the owner %d:%d", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
		modes[h.Name] = h.Mode
	}
}

func build(t *testing.T, mtime time.Time) (text string, data []byte) {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "lib", "more"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"program": 0o700, "lib/a": 0o600, "lib/more/b": 0o640} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("content of "+name), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, mtime, mtime); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "image.tar")
	var said bytes.Buffer
	args := []string{"-o", out, "-name", "outbid.test/outbid:1", "-arch", "amd64", filepath.Join(dir, "program") + "=/usr/local/bin/outbid", filepath.Join(dir, "lib") + "=/lib"}
	if err := run(args, &said); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return said.String(), data
}

// Two builds of the same files in other places and at other times have the same bytes.
func TestBuildsAreReproducible(t *testing.T) {
	t.Parallel()
	one, first := build(t, time.Unix(1_700_000_000, 0))
	two, second := build(t, time.Unix(1_800_000_000, 0))
	if one != two || !bytes.Equal(first, second) {
		t.Errorf("%s and %s", one, two)
	}
	if !strings.HasPrefix(one, "outbid.test/outbid:1 sha256:") {
		t.Errorf("said %s", one)
	}
}

// The archive is an OCI layout whose parts have the digests that name them.
func TestArchive(t *testing.T) {
	t.Parallel()
	said, data := build(t, time.Unix(1_700_000_000, 0))
	files, _ := archive(t, bytes.NewReader(data))
	for name, content := range files {
		if want, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && want != "" && digestOf(content) != "sha256:"+want && len(content) > 0 {
			t.Errorf("%s has the digest %s", name, digestOf(content))
		}
	}
	var index, manifest struct {
		Manifests []struct{ Digest string }
		Layers    []struct{ Digest string }
	}
	blob := func(digest string) []byte { return files["blobs/sha256/"+strings.TrimPrefix(digest, "sha256:")] }
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 || !strings.Contains(said, index.Manifests[0].Digest) {
		t.Fatalf("%v: index %s", err, files["index.json"])
	}
	if err := json.Unmarshal(blob(index.Manifests[0].Digest), &manifest); err != nil || len(manifest.Layers) != 1 {
		t.Fatalf("%v: manifest %s", err, blob(index.Manifests[0].Digest))
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0].Digest)))
	if err != nil {
		t.Fatal(err)
	}
	inside, modes := archive(t, unzipped)
	if string(inside["usr/local/bin/outbid"]) != "content of program" || string(inside["lib/more/b"]) != "content of lib/more/b" {
		t.Errorf("the image has %v", modes)
	}
	for name, want := range map[string]int64{"usr/local/bin/outbid": 0o755, "lib/a": 0o644, "tmp/": 0o1777, "var/tmp/": 0o1777, "usr/local/": 0o755} {
		if modes[name] != want {
			t.Errorf("%s has the mode %o, want %o", name, modes[name], want)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{"no files": nil, "want FILE=/PATH": {"a"}, "no such file": {filepath.Join(t.TempDir(), "none") + "=/a"}} {
		args = append([]string{"-o", filepath.Join(t.TempDir(), "x.tar")}, args...)
		if err := run(args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// The kubelet finds an imported image by its full name alone.
func TestFullNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"outbid:1": "docker.io/library/outbid:1", "team/outbid:1": "docker.io/team/outbid:1",
		"registry.example.org/outbid:1": "registry.example.org/outbid:1", "localhost/outbid:1": "localhost/outbid:1", "host:5000/outbid:1": "host:5000/outbid:1",
	} {
		if got := fullName(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
