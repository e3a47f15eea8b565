package objects

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ err, want error }{
		{&fs.PathError{Op: "write", Err: syscall.ENOSPC}, ErrFull},
		{fmt.Errorf("x: %w", syscall.EDQUOT), ErrFull},
		{syscall.EIO, ErrUnavailable},
		{syscall.ESTALE, ErrUnavailable},
		{fs.ErrNotExist, nil},
		{syscall.ENOENT, ErrNotFound},
		{errors.New("x"), nil},
	} {
		got := classify(c.err)
		if !errors.Is(got, c.err) || c.want != nil && !errors.Is(got, c.want) {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

func TestStaleFilesGo(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if _, err := OpenDir(root); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * StaleAfter)
	for _, name := range []string{"put-old", "put-new"} {
		path := filepath.Join(root, tempDir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "old") {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	d, err := OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(d.root, tempDir))
	if err != nil || len(entries) != 1 || entries[0].Name() != "put-new" {
		t.Errorf("left are %v, %v", entries, err)
	}
}

func TestClashIsExplained(t *testing.T) {
	t.Parallel()
	d, err := OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, keys := range [][2]string{{"a", "a/b"}, {"c/d", "c"}} {
		if err := d.Put(t.Context(), keys[0], strings.NewReader(""), 0); err != nil {
			t.Fatal(err)
		}
		err := d.Put(t.Context(), keys[1], strings.NewReader(""), 0)
		if err == nil || !strings.Contains(err.Error(), "cannot both exist in a directory") {
			t.Errorf("%v: %v", keys, err)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(d.root, tempDir)); err != nil || len(entries) != 0 {
		t.Errorf("left over: %v, %v", entries, err)
	}
}

func FuzzCheckKey(f *testing.F) {
	for _, key := range []string{"a/b", "../a", "a//b", ".a", "a.b-c_d/0"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if CheckKey(key) != nil {
			return
		}
		path := filepath.Join("/root-of-store", key)
		if !strings.HasPrefix(path, "/root-of-store/") || path != "/root-of-store/"+key || checkPrefix(key) != nil {
			t.Errorf("key %q leaves the store as %s, or is no prefix of itself", key, path)
		}
	})
}
