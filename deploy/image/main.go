// Command image writes a container image of static files into an archive, without a builder, a daemon or a registry:
//
//	go run ./deploy/image -o outbid.tar -name outbid:1.0 -entrypoint /usr/local/bin/outbid bin/outbid=/usr/local/bin/outbid
//
// The archive is an OCI layout. The same files give the same bytes: times are zero, owners root, modes 0755 or 0644.
// 'ctr images import', 'skopeo copy oci-archive:' and 'podman load' read it. It prints the image's digest.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// settings are those of an image.
type settings struct {
	out, name, arch, entrypoint, user string
}

func run(args []string, stdout io.Writer) error {
	var s settings
	f := flag.NewFlagSet("image", flag.ContinueOnError)
	f.StringVar(&s.out, "o", "image.tar", "`FILE` to write")
	f.StringVar(&s.name, "name", "outbid:dev", "`NAME:TAG` of the image")
	f.StringVar(&s.arch, "arch", runtime.GOARCH, "`ARCHITECTURE` of the files")
	f.StringVar(&s.entrypoint, "entrypoint", "/usr/local/bin/outbid", "`PROGRAM` that a container runs")
	f.StringVar(&s.user, "user", "10001:10001", "`UID:GID` of its processes")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() == 0 {
		return errors.New("no files: want FILE=/PATH or DIR=/PATH")
	}
	digest, err := s.write(f.Args())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, s.name, digest)
	return err
}

// write writes the archive and returns the digest of the image's manifest.
func (s settings) write(files []string) (string, error) {
	layer, err := layerOf(files)
	if err != nil {
		return "", err
	}
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return "", err
	}
	if _, err := zip.Write(layer); err != nil {
		return "", err
	}
	if err := zip.Close(); err != nil {
		return "", err
	}
	var b blobs
	const oci = "application/vnd.oci.image."
	config := b.addJSON(oci+"config.v1+json", map[string]any{
		"architecture": s.arch, "os": "linux",
		"config": map[string]any{
			"Entrypoint": []string{s.entrypoint}, "User": s.user, "Env": []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{digestOf(layer)}},
		"history": []any{map[string]any{"created_by": "deploy/image"}},
	})
	manifest := b.addJSON(oci+"manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": oci + "manifest.v1+json", "config": config,
		"layers": []any{b.add(oci+"layer.v1.tar+gzip", packed.Bytes())},
	})
	_, tag, _ := strings.Cut(path.Base(s.name), ":")
	manifest["annotations"] = map[string]string{"io.containerd.image.name": fullName(s.name), "org.opencontainers.image.ref.name": tag}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}})
	if err != nil {
		return "", errors.Join(err, b.err)
	}
	digest, _ := manifest["digest"].(string)
	return digest, errors.Join(b.err, b.save(s.out, index))
}

// fullName returns a name with the registry and the folder that container runtimes add to a short one. The kubelet would
// not find an imported image by its short name.
func fullName(name string) string {
	first, _, found := strings.Cut(name, "/")
	switch {
	case !found:
		return "docker.io/library/" + name
	case strings.ContainsAny(first, ".:") || first == "localhost":
		return name
	default:
		return "docker.io/" + name
	}
}

// layerOf returns a tar of the files, each given as FILE=/PATH or DIR=/PATH, and of the directories that programs need.
func layerOf(files []string) ([]byte, error) {
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	made := map[string]bool{".": true}
	var errs []error
	for _, dir := range []string{"tmp", "var/tmp", "etc", "proc", "sys", "dev", "run"} {
		errs = append(errs, addDir(w, dir, made))
	}
	for name, text := range map[string]string{"etc/passwd": "root:x:0:0::/:/sbin/nologin\noutbid:x:10001:10001::/tmp:/sbin/nologin\n"} {
		errs = append(errs, addFile(w, name, 0o644, []byte(text), made))
	}
	for _, file := range files {
		from, to, ok := strings.Cut(file, "=")
		if !ok || !path.IsAbs(to) {
			return nil, fmt.Errorf("%q: want FILE=/PATH or DIR=/PATH", file)
		}
		errs = append(errs, filepath.WalkDir(from, func(at string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			below, err := filepath.Rel(from, at)
			if err != nil {
				return err
			}
			info, err := os.Stat(at) // follows links, because an image has its own files
			if err != nil {
				return err
			}
			data, err := os.ReadFile(at) //nolint:gosec // the caller names it
			if err != nil {
				return err
			}
			mode := int64(0o644)
			if info.Mode()&0o100 != 0 {
				mode = 0o755
			}
			return addFile(w, path.Join(to, filepath.ToSlash(below))[1:], mode, data, made)
		}))
	}
	return raw.Bytes(), errors.Join(append(errs, w.Close())...)
}

// addDir adds a directory and those above it, each once.
func addDir(w *tar.Writer, dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	made[dir] = true
	if err := addDir(w, path.Dir(dir), made); err != nil {
		return err
	}
	mode := int64(0o755)
	if path.Base(dir) == "tmp" {
		mode = 0o1777
	}
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode, Format: tar.FormatPAX})
}

func addFile(w *tar.Writer, name string, mode int64, data []byte, made map[string]bool) error {
	if err := addDir(w, path.Dir(name), made); err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// blobs are the parts of an image, in order.
type blobs struct {
	list [][]byte
	err  error
}

func (b *blobs) add(mediaType string, data []byte) map[string]any {
	b.list = append(b.list, data)
	return map[string]any{"mediaType": mediaType, "digest": digestOf(data), "size": len(data)}
}

func (b *blobs) addJSON(mediaType string, v any) map[string]any {
	data, err := json.Marshal(v)
	b.err = errors.Join(b.err, err)
	return b.add(mediaType, data)
}

// save writes the archive.
func (b *blobs) save(out string, index []byte) (err error) {
	f, err := os.Create(out) //nolint:gosec // the caller names it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	made := map[string]bool{".": true}
	if err := addFile(w, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`), made); err != nil {
		return err
	}
	if err := addFile(w, "index.json", 0o644, index, made); err != nil {
		return err
	}
	for _, data := range b.list {
		if err := addFile(w, "blobs/sha256/"+strings.TrimPrefix(digestOf(data), "sha256:"), 0o644, data, made); err != nil {
			return err
		}
	}
	return w.Close()
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
